from __future__ import annotations

import lzma
import os
from pathlib import Path

import pytest

from service.heads.translate.text.detect import Detector


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(["en", "de"])


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Good morning", "en"),
        ("Guten Morgen", "de"),
        ("I love you", "en"),
        ("Wo bist du?", "de"),
        ("HALLO WELT, WIE GEHT ES DIR?", "de"),
        ("Bonjour, comment allez-vous aujourd'hui ?", "fr"),
        ("Ik heb een hond en een kat.", "nl"),
        ("Привет, как дела?", "ru"),
        ("こんにちは、元気ですか", "ja"),
        ("Das ist https://www.english-words.example/the/weather/is/nice", "de"),
    ],
)
def test_the_best_language_comes_first(detector: Detector, text: str, language: str) -> None:
    detections = detector.detect(text)
    assert detections[0].language == language
    assert 50 < detections[0].confidence <= 100
    confidences = [detection.confidence for detection in detections]
    assert confidences == sorted(confidences, reverse=True)
    assert sum(confidences) <= 100.1


@pytest.mark.parametrize("text", ["", "  \n", "12345", "😀👍", "https://example.org", "?!", "\ud800"])
def test_a_text_without_words_has_no_language(detector: Detector, text: str) -> None:
    assert detector.detect(text) == []


def test_the_same_text_gives_the_same_answer(detector: Detector) -> None:
    assert detector.detect("Ein kurzer Satz\nund noch einer") == Detector(["en", "de"]).detect(
        "Ein kurzer Satz\nund noch einer"
    )


def test_codes_are_those_of_the_server() -> None:
    assert Detector(["zh-Hans", "en"]).detect("你好，今天天气很好")[0].language == "zh-Hans"


def test_languages_of_the_server_are_preferred() -> None:
    unsure = "Hallo Tom"
    german, dutch = Detector(["de"]).detect(unsure), Detector(["nl"]).detect(unsure)
    assert dict(german)["de"] > dict(dutch).get("de", 0.0)


@pytest.mark.parametrize(("name", "accuracy"), [("tatoeba-dev", 0.99), ("newstest2013", 0.99)])
def test_sentences_of_the_dev_sets_are_recognised(detector: Detector, name: str, accuracy: float) -> None:
    folder = os.environ.get("POLYHEAD_DATA")
    if folder is None:
        pytest.skip("POLYHEAD_DATA does not name the folder of the training data")
    with lzma.open(Path(folder) / "translate-en-de" / "dev" / f"{name}.tsv.xz", "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in file][:1_000]
    right = [
        [detection.language for detection in detector.detect(text)][:1] == [language]
        for pair in pairs
        for language, text in zip(("en", "de"), pair, strict=True)
    ]
    assert sum(right) / len(right) >= accuracy
