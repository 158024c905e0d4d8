"""Which language a text is in, by fastText's compact identifier (docs/decisions/0031-language-detection.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import fasttext

from service.heads.translate.text.protect import has_letters, without_spans

_MODEL = Path(__file__).with_name("lid.176.ftz")
"""fastText's compressed model (https://fasttext.cc/docs/en/language-identification.html), under the Creative Commons
Attribution-Share-Alike License 3.0.
"""
_LABEL_PREFIX = "__label__"
_MAX_CHARS = 2_000
"""More text does not change the answer."""
_PRIOR = 20.0
"""How much likelier a text is in a language that this server translates than in any other."""
_MIN_CONFIDENCE = 1.0
_MIN_EVIDENCE = 0.02
_SENTENCE_END = ".!?… "
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


class Detection(NamedTuple):
    """A language and the confidence in it, in per cent."""

    language: str
    confidence: float


class Detector:
    """Detects 176 languages, with a preference for `languages`, those that the server has models for.

    Texts are short, and users of a server for English and German write English and German: its languages get a prior
    twenty times that of any other. Clear French is still found to be French, so the caller can refuse it by name.
    Safe for several threads; the same text always gives the same answer.
    """

    def __init__(self, languages: Sequence[str]) -> None:
        self._model = fasttext.load_model(str(_MODEL))
        self._codes = {language.split("-")[0].lower(): language for language in reversed(languages)}
        self._nothing = self._probabilities("")

    def detect(self, text: str) -> list[Detection]:
        """Languages of at least one per cent, best first; empty when the text has no letters or nothing is detected."""
        sample = _NOT_TEXT.sub(" ", without_spans(text[:_MAX_CHARS]))
        if not has_letters(sample):
            return []
        # The compact model knows few words that stand alone or in capitals, and more as the end of a sentence.
        readings = [self._probabilities(sample), self._probabilities(sample.lower().rstrip(_SENTENCE_END) + ".")]
        readings = [reading for reading in readings if self._evidence(reading) >= _MIN_EVIDENCE]
        if not readings:
            return []
        weights: defaultdict[str, float] = defaultdict(float)
        for reading in readings:
            for language, probability in reading.items():
                weights[language] += probability * (_PRIOR if language in self._codes else 1.0)
        total = sum(weights.values())
        detections = [
            Detection(self._codes.get(language, language), round(100 * weight / total, 2))
            for language, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0]))
        ]
        return [detection for detection in detections if detection.confidence >= _MIN_CONFIDENCE]

    def _probabilities(self, text: str) -> dict[str, float]:
        """The probability of each language; `text` has no line break, which ends a text for fastText."""
        labels, probabilities = self._model.predict(text, k=-1)
        return {
            label.removeprefix(_LABEL_PREFIX): min(float(probability), 1.0)
            for label, probability in zip(labels, probabilities, strict=True)
        }

    def _evidence(self, probabilities: dict[str, float]) -> float:
        """The distance of an answer from that for an empty text: 0 when the model knows no part of a word."""
        return max(abs(probability - self._nothing.get(code, 0.0)) for code, probability in probabilities.items())
