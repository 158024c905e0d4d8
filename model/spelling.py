"""German spelling from before the reform of 1996, brought to that of today: "daß" -> "dass", "Beschluß" -> "Beschluss".

Since the reform ss stands after a short vowel and ß after a long one ("Straße", "groß", "Maß") or a diphthong ("weiß",
"außen", "fließen"). A lone i or e before ß is always short; of the other vowels the short ones are listed, by stem.
"""

from __future__ import annotations

import re

_SHORT_VOWELS = re.compile(
    r"""(
      (?<! [ae] ) i                                          # gewiß, ißt, Mißbrauch, Kompromiß; not weiß
    | (?<! i ) e                                             # Prozeß, eßbar, vergeßlich; not ließ
    | \b (?: so )? da | [lfhn] a | (?<! s ) pa | ba (?! ße )   # daß, läßt, Anlaß, Faß, verhaßt, naß, Paß, Baß; not Spaß
    | kra | kompa | elsa | pra (?= ßt )                      # kraß, Kompaß, Elsaß, gepraßt
    | [lh] ä | grä | pä (?= ßl ) | wä (?= ßr ) | nä (?= ßt )   # läßt, häßlich, gräßlich, unpäßlich, wäßrig; not mäßig
    | [fgp] ä (?= ßchen )                                    # Fäßchen, Gäßchen; not Gefäß, vergäße
    | schlo (?! ßen ) | (?<! g ) ro | go | geno | gescho     # Schloß, Roß, Sproß, verdroß, goß, genoß; not groß
    | kolo | ambo | \b bo (?= ß \b )                         # Koloß, Amboß, Boß; not bloß
    | (?-i: \b [a-zäöü]* (?: flo | scho ) (?= ß \b ) )       # es floß, er erschoß; not das Floß, der Schoß
    | lu | schu | [kng] u | dru | stu                        # Fluß, Schluß, Schuß, Kuß, Nuß, Guß; not Gruß, Fuß
    | mu (?! ße ) | wu (?= ßt ) | ru (?= ßland )             # muß, bewußt, Rußland; not Muße, Ruß
    | [mwk] ü (?= ßt ) | [nkl] ü (?= ßchen )                 # müßte, wüßte, küßt, Nüßchen; not süß, grüßt
    | (?: schl | (?<! g ) r ) ö (?= ß (?: chen | l ) )       # Schlößchen, Rößl, Sprößling; not größer
    | schö (?= ßling )
    )ß""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"\w*ß\w*")


def modernise_german(text: str) -> str:
    """`text` with ss for each ß after a short vowel (SS in a word in capitals)."""
    return _WORD.sub(_modernise_word, text)


def _modernise_word(match: re.Match[str]) -> str:
    word = match.group()
    rest = word.replace("ß", "")
    return _SHORT_VOWELS.sub(r"\1SS" if len(rest) > 1 and rest.isupper() else r"\1ss", word)
