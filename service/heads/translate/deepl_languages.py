"""Languages as DeepL's clients write them: in capitals, and English and Portuguese as targets by country."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.heads.translate.errors import UnsupportedLanguageError
from service.heads.translate.languages import Language, Languages

_TARGET_VARIANTS = {
    "EN": (("EN-GB", "English (British)"), ("EN-US", "English (American)")),
    "PT": (("PT-BR", "Portuguese (Brazilian)"), ("PT-PT", "Portuguese (European)")),
}
_SPELLINGS = {"NO": "NB"}
"""Where DeepL has another code than most models."""
_VARIANT = re.compile(r"([A-Z]{2,3})-(?:[A-Z]{2}|\d{3}|HANS)")
"""A language in a country, a part of the world, or the script that the code alone stands for."""


def parse_language(written: str, languages: Languages, *, parameter: str) -> str:
    """The code as the models spell it. A variant that no model has is the language itself: EN-US is en.

    Raises UnsupportedLanguageError.
    """
    wanted = written.strip().replace("_", "-").upper()
    variant = _VARIANT.fullmatch(wanted)
    for code in (wanted, *([variant[1]] if variant else ())):
        for spelling in (code, *(ours for ours, theirs in _SPELLINGS.items() if theirs == code)):
            if (found := languages.find(spelling)) is not None:
                return found
    raise UnsupportedLanguageError(written, parameter=parameter)


def source_code(code: str) -> str:
    """The language of a text, without its variant: "EN"."""
    language = code.replace("_", "-").partition("-")[0].upper()
    return _SPELLINGS.get(language, language)


def source_languages(languages: Languages) -> list[tuple[str, str]]:
    """(code, English name) of each language that can be translated from."""
    found: dict[str, str] = {}
    for language in languages.offered:
        if set(language.targets) - {language.code}:
            found.setdefault(source_code(language.code), language.name)
    return sorted(found.items())


def target_languages(languages: Languages) -> list[tuple[str, str]]:
    """(code, English name) of each language that can be translated to."""
    reached = {code for language in languages.offered for code in language.targets if code != language.code}
    return sorted({variant for each in languages.offered if each.code in reached for variant in _variants(each)})


def _variants(language: Language) -> Sequence[tuple[str, str]]:
    code = language.code.replace("_", "-").upper()
    code = _SPELLINGS.get(code, code)
    return _TARGET_VARIANTS.get(code, ((code, language.name),))
