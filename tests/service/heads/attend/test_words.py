from __future__ import annotations

import pytest

from service.heads.attend.words import find_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The house, it's old.", ["The", "house", ",", "it's", "old", "."]),
        ("EU-Haushalt: 3.500,75 Euro", ["EU-Haushalt", ":", "3.500,75", "Euro"]),
        ("um 10:30 Uhr.", ["um", "10:30", "Uhr", "."]),
        ("wait... what?!", ["wait", ".", ".", ".", "what", "?", "!"]),
        ("-a- 'b'", ["-", "a", "-", "'", "b", "'"]),
        ("über\u00a0Grenzen\n\tweg", ["über", "Grenzen", "weg"]),
        ("u\u0308ber", ["u\u0308ber"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("日本語です", ["日", "本", "語", "で", "す"]),
        ("good 👍🏽 day", ["good", "👍", "🏽", "day"]),
        ("", []),
        ("  ", []),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in find_words(text)] == words
