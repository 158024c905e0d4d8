"""Five hundred texts of all kinds, always the same: what an embedding model meets, and what it does not expect."""

from __future__ import annotations

import random

_SUBJECTS = (
    "The old fisherman",
    "A committee of experts",
    "My neighbour's cat",
    "Nobody in the village",
    "The quarterly report",
    "An electron",
    "Queen Elizabeth II",
    "The 3:15 train to Leeds",
    "This watch",
    "Someone named Søren",
)
_VERBS = (
    "repaired",
    "could not explain",
    "has been waiting for",
    "sold",
    "compared",
    "was afraid of",
    "discovered",
    "paints",
    "voted against",
    "will never forget",
)
_OBJECTS = (
    "the broken engine",
    "a treaty signed in 1648",
    "three kilograms of rice",
    "the theory of relativity",
    "an unusually bright star",
    "her grandmother's recipe",
    "the price of electricity",
    "a river that flows north",
    "seventy-two letters",
    "https://example.com/page?id=7",
    "user_name@example.org",
    "the C++ compiler",
)
_ENDINGS = ("", ".", "!", "?", ", although it was raining.", " (again); nobody knows why...", " — in the end.", " 100%")
_OTHER_SCRIPTS = (
    "Der Zug nach München hat heute wieder Verspätung.",
    "Où est la bibliothèque, s'il vous plaît ?",
    "¿Cuánto cuesta este libro?",
    "今天天气很好，我们去公园吧。",
    "吾輩は猫である。名前はまだ無い。",
    "한국어 문장입니다.",
    "Собака спит на диване.",
    "الطقس جميل اليوم",
    "שלום עולם",
    "Η γάτα κοιμάται.",
    "ภาษาไทยไม่มีช่องว่าง",
    "यह एक वाक्य है।",
    "Được rồi, cảm ơn bạn.",
    "İstanbul'da hava güneşli.",
    "Zażółć gęślą jaźń",
    "Ça coûte 12 € à Nîmes",
    "თბილისი ლამაზია",
)
_ODDITIES = (
    "",
    " ",
    ".",
    "a",
    "?!",
    "\n\n",
    "\t x \t",
    "I",
    "42",
    "3.14159",
    "...",
    "-",
    "ok",
    "A B C",
    "\u00a0",
    "\u200b",
    "ﬁne ligatures",
    "🙂",
    "👩‍👩‍👧‍👦 family",
    "I ❤️ 🐶🐱!!!",
    "🇩🇪🇫🇷🇯🇵",
    "naïve café",
    "nai\u0308ve cafe\u0301",
    "SHOUTING ALL THE TIME",
    "CamelCaseAndsnake_case",
    "x = [i ** 2 for i in range(10)]",
    "<p>markup &amp; entities</p>",
    "E = mc²",
    "½ ⅓ ¾",
    "ｆｕｌｌ ｗｉｄｔｈ",
    "\ufffd",
    "a\u0000b",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 150,
    "∀x∈ℝ: x² ≥ 0",
    "don't can't won't",
    "№ 5 ™ ©",
)


def varied_sentences(count: int = 500, seed: int = 11) -> list[str]:
    """Oddities, other scripts, texts far longer than any limit, and sentences of one to forty clauses."""
    generator = random.Random(seed)
    texts = [*_ODDITIES, *_OTHER_SCRIPTS]
    texts += [" ".join(_sentence(generator) for _ in range(number)) for number in (18, 30, 40, 60, 120)]
    texts += ["word " * 700, "🙂" * 600, "字" * 900]
    while len(texts) < count:
        kind = generator.random()
        if kind < 0.7:
            texts.append(_sentence(generator))
        elif kind < 0.9:
            texts.append(" ".join(_sentence(generator) for _ in range(generator.randint(2, 12))))
        else:
            texts.append(f"{generator.choice(_OTHER_SCRIPTS)} {generator.choice(_ODDITIES)} {_sentence(generator)}")
    return texts


def _sentence(generator: random.Random) -> str:
    return " ".join(generator.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS)) + generator.choice(_ENDINGS)
