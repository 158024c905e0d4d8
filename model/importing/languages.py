"""Languages as models spell them, and as BCP 47 does (https://www.rfc-editor.org/info/bcp47)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from babel.core import get_global

from model.importing.options import ModelImportError

_CODE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*")


def is_code(text: object) -> bool:
    """Whether it has the form of a language's code, as manifests hold them."""
    return isinstance(text, str) and _CODE.fullmatch(text) is not None


def to_bcp47(spellings: Iterable[str]) -> dict[str, str]:
    """Our code -> what the model calls the language, for spellings such as "deu_Latn", "de_DE", "de" and "zh_Hant".

    The shortest code that CLDR knows, "deu" being "de" and "arb" "ar"; a script is named where the model has the
    language in several, or in one that is not the usual. A region is left out: mBART's say nothing more.
    """
    parts = {spelling: _parts(spelling) for spelling in spellings}
    scripts = Counter(language for language, _ in set(parts.values()))
    codes: dict[str, str] = {}
    for spelling, (language, script) in parts.items():
        is_named = script and (scripts[language] > 1 or script != _usual_script(language))
        code = f"{language}-{script}" if is_named else language
        if code in codes:  # two that CLDR takes for one keep the model's own
            code = spelling.replace("_", "-")
        codes.setdefault(code, spelling)
    return codes


def _parts(spelling: str) -> tuple[str, str]:
    """Language and script, the latter empty where it is not named."""
    language, *rest = re.split("[-_]", spelling)
    alias = get_global("language_aliases").get(language.lower(), language.lower())
    script = next((part.title() for part in rest if len(part) == 4 and part.isalpha()), "")
    return re.split("[-_]", alias)[0], script


def _usual_script(language: str) -> str:
    likely = get_global("likely_subtags").get(language, "")
    return next((part for part in re.split("[-_]", likely) if len(part) == 4 and part.isalpha()), "")


def pairs(
    sources: Sequence[str], targets: Sequence[str], chosen_sources: Sequence[str], chosen_targets: Sequence[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """All codes and directions, of those that the user chose where any are given; ModelImportError for unknown ones."""
    for kind, known, chosen in (("source", sources, chosen_sources), ("target", targets, chosen_targets)):
        if unknown := [code for code in chosen if code not in known]:
            raise ModelImportError(
                f"the model has no {kind} language {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
            )
    sources = [code for code in sources if not chosen_sources or code in chosen_sources]
    targets = [code for code in targets if not chosen_targets or code in chosen_targets]
    directions = [(source, target) for source in sources for target in targets if source != target]
    return list(dict.fromkeys([*sources, *targets])), directions
