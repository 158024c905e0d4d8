"""German spelling from before the reform of 1996, brought to that of today: "daß" -> "dass", "Beschluß" -> "Beschluss".

Since the reform ss stands after a short vowel and ß after a long one ("Straße", "groß", "Maß"). Which vowels are short is
a matter of the word, so this is a list of stems, matched at the start of a word or, where that is unambiguous, inside it.
"""

from __future__ import annotations

import re

# Whole words and their inflections.
_AT_START = (
    "daß|sodaß|muß|müßt|mußt|gemußt|laß|läßt|faß|faßt|gefaßt|paß|paßt|gepaßt|päss|haß|haßt|gehaßt|häßlich|naß|bläß|wußt"
    "|gewußt|wüßt|gewiß|bißchen|riß|risse|kuß|küßt|nuß|küss|guß|iß|ißt|friß|frißt|vergiß|vergißt|mißt|bemißt|roß|schloß"
    "|goß|floß|boß|eßbar|eßt|eßtisch|meßbar|preßt|gepreßt|blaß|kraß|faßbar|ließest|beeinflußt|befaßt|erfaßt|verfaßt"
    "|umfaßt|angepaßt|verpaßt|verläßt|erläßt|entläßt|zuläßt|überläßt|hinterläßt|unterläßt|veranlaßt|vermißt|mißtrau"
    "|mißbrauch|mißacht|mißverst|mißlung|mißling|mißfall|mißhand|mißerfolg|mißstand|mißständ|rußland|rußlands"
)
# Endings of compounds: Beschluß, Einfluß, Ausschuß, Anlaß, Kompromiß, Prozeß, unbewußt, zuverläßlich.
_INSIDE = (
    "schluß|fluß|schuß|genuß|anlaß|nachlaß|erlaß|ablaß|einlaß|verlaß|prozeß|kongreß|exzeß|expreß|streß|kompromiß|bewußt"
    "|läßlich|läßig|faßung|paßung|meßung|rüßel|schlüß|flüß|schüß|reißverschluß|verdruß|überdruß|biß|zuschuß|engpaß|reisepaß"
    "|unermeßlich|vergeßlich|entschloß|beschloß|abschloß|anschloß|umschloß|verschloß|erschloß"
)
_WORDS = re.compile(rf"\b(?:{_AT_START})|(?:{_INSIDE})", re.IGNORECASE)


def modernise_german(text: str) -> str:
    """`text` with the ß of the listed stems written as ss (as SS in capitals)."""
    if "ß" not in text:
        return text
    return _WORDS.sub(lambda match: match.group().replace("ß", "SS" if match.group().isupper() else "ss"), text)
