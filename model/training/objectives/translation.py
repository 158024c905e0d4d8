"""Translation: each column of the pairs into the other, by teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.alignment import flipped, from_pharaoh
from model.checkpoint import Checkpoint
from model.config import ModelConfig
from model.corpus.augmentation import augment
from model.data import DataError, PairFile, read_lines, read_pairs
from model.decoding import pad
from model.evaluation import evaluate_pairs
from model.tokenizer import Tokenizer, language_tag
from model.training.batches import Example
from model.training.config import DevSource, TrainingConfig, TrainSource, TranslationConfig
from model.training.data import encode_pairs, learn_tokenizer, read_pair_source, thin
from model.training.guided import TokenLink, decode_with_map, guided_loss, link_weights, token_links
from model.training.objectives.base import DevScore, Objective, Report, smoothed_cross_entropy
from model.training.subwords import BpeDropout, Words, encode_words
from model.transformer import Transformer
from model.translation_format import OWN_FORMAT

_SAMPLED_PAIRS = 500
"""Of each file, to tell at the start how many of its pairs are too long."""


class TextExample(NamedTuple):
    """A pair as it stands in its file, to be translated from the first language to the second, or back."""

    first: str
    second: str
    is_back: bool
    links: str
    """Words of the first and of the second that belong together, "0-0 1-2"."""


class TranslationExample(NamedTuple):
    """Token ids: the source with its tag and end, the target without begin and end."""

    source: Sequence[int]
    target: Sequence[int]
    links: Sequence[TokenLink] = ()


class TranslationBatch(NamedTuple):
    """Padded on the right: source (B,S), lengths (B), decoder input (B,T) after begin, labels (B,T) up to the end.

    `links` (B,T,S) is what the guided head is trained towards, (B,0,0) where none is.
    """

    source_ids: Tensor
    source_lengths: Tensor
    input_ids: Tensor
    labels: Tensor
    links: Tensor


class Translation(Objective[PairFile, PairFile, TranslationBatch]):
    """Label-smoothed cross-entropy of the target, both directions of a pair; scored by BLEU and chrF, greedily.

    Text becomes tokens as its round begins, so that each time a pair comes it can be augmented in another way.
    """

    unit = "pairs"

    def __init__(
        self, config: TrainingConfig, tokenizer: Tokenizer, model_config: ModelConfig, dev: Mapping[str, PairFile]
    ) -> None:
        super().__init__(config, tokenizer, model_config, dev)
        assert isinstance(config.objective, TranslationConfig)
        self.options = config.objective
        first, second = config.data.languages
        self.formats = [OWN_FORMAT.bind(*way, tokenizer, tokenizer) for way in ((first, second), (second, first))]
        """There and back."""
        self.dropout = BpeDropout(tokenizer, self.options.bpe_dropout) if self.options.bpe_dropout else None

    @classmethod
    def read(cls, source: TrainSource, config: TrainingConfig, root: Path, report: Report) -> PairFile:
        file = read_pair_source(source, root, config.data.languages, report)
        file.direction = source.direction
        if source.links:
            file.links = list(read_lines(root / source.links))
            if len(file.links) != len(file.pairs):
                told = f"{source.links} has {len(file.links)} lines, {source.path} has {len(file.pairs)} pairs"
                raise DataError(f"{told}: clean the pairs, then align them")
        return file

    @classmethod
    def read_dev(cls, source: DevSource, root: Path) -> PairFile:
        file = read_pairs(root / source.path)
        file.pairs = thin(file.pairs, source.max_pairs)
        return file

    @classmethod
    def learn_tokenizer(cls, files: Sequence[PairFile], config: TrainingConfig) -> Tokenizer:
        """One vocabulary for both languages, with a tag for each."""
        tags = [language_tag(code) for code in sorted(config.data.languages)]
        return learn_tokenizer((text for file in files for pair in file.pairs for text in pair), config.tokenizer, tags)

    def examples(self, file: PairFile, limit: int) -> tuple[list[Example], int]:
        """All from the first language to the second, then all back; how many are too long is told from a sample."""
        sample = thin(file.pairs, _SAMPLED_PAIRS)
        num_kept = len(encode_pairs(sample, self.tokenizer, limit - 2))
        if not num_kept:
            return [], len(file.pairs)
        links = file.links or [""] * len(file.pairs)
        examples: list[Example] = []
        for is_back, direction in ((False, "there"), (True, "back")):
            if file.direction in ("both", direction):
                examples += [
                    TextExample(*pair, is_back, linked) for pair, linked in zip(file.pairs, links, strict=True)
                ]
        return examples, round(len(file.pairs) * (1 - num_kept / len(sample)))

    def prepare(self, examples: Sequence[Example], generator: np.random.Generator) -> Sequence[Example]:
        """Augment the pairs and encode them; those beyond the limit are left out."""
        limit = min(self.config.data.max_tokens, self.model_config.max_seq_len)
        texts = self._augment([TextExample(*example) for example in examples], generator)
        sides = [self._words([text.first for text in texts]), self._words([text.second for text in texts])]
        prepared: list[TranslationExample] = []
        for text, a, b in zip(texts, *sides, strict=True):
            first, second = self._split(a, generator), self._split(b, generator)
            lengths = [sum(map(len, words)) for words in (first, second)]
            if min(lengths) > 0 and max(lengths) <= limit - 2:  # two special tokens stand beside a source
                prepared.append(self._example(text, first, second))
        return prepared

    def _words(self, texts: list[str]) -> list[Words]:
        if self.dropout is None and not self.options.guided_alignment:
            return [[ids] for ids in self.tokenizer.encode_batch(texts)] if texts else []
        return encode_words(self.tokenizer, texts)

    def _split(self, words: Words, generator: np.random.Generator) -> Words:
        return words if self.dropout is None else [self.dropout.split(word, generator) for word in words]

    def _example(self, text: TextExample, first: Words, second: Words) -> TranslationExample:
        source, target = (second, first) if text.is_back else (first, second)
        links: list[TokenLink] = []
        if self.options.guided_alignment and text.links:
            word_links = from_pharaoh(text.links)
            # The tag stands before a source; the token that begins a target is what the decoder reads first.
            links = token_links(sorted(flipped(word_links) if text.is_back else word_links), source, target, 1, 1)
        ids = self.formats[text.is_back].source_ids(list(chain.from_iterable(source)))
        return TranslationExample(ids, list(chain.from_iterable(target)), links)

    def _augment(self, texts: list[TextExample], generator: np.random.Generator) -> list[TextExample]:
        options = self.config.data.augmentation
        if options.is_off:
            return texts
        result = []
        for is_back in (False, True):  # only pairs of one direction can be joined
            links = {(text.first, text.second): text.links for text in texts if text.is_back == is_back}
            pairs = [(text.first, text.second) for text in texts if text.is_back == is_back]
            pairs = augment(pairs, options, self.config.data.languages, generator)
            # A pair that was changed has other words, so its links are left out.
            result += [TextExample(*pair, is_back, links.get(pair, "")) for pair in pairs]
        return result

    def length(self, example: Example) -> int:
        source, target = example[:2]
        return max(len(source), len(target) + 1)

    def collate(self, group: Sequence[Example], generator: np.random.Generator) -> TranslationBatch:
        model = self.model_config
        sources = pad([example[0] for example in group], model.pad_id)
        inputs = pad([[model.bos_id, *example[1]] for example in group], model.pad_id)
        labels = pad([[*example[1], model.eos_id] for example in group], model.pad_id)
        lengths = torch.tensor([len(example[0]) for example in group])
        sizes = (inputs.shape[1], sources.shape[1]) if self.options.guided_alignment else (0, 0)
        links = link_weights([example[2] if any(sizes) else () for example in group], *sizes)
        return TranslationBatch(sources, lengths, inputs, labels, links)

    def num_labels(self, batch: TranslationBatch) -> int:
        return int((batch.labels != self.model_config.pad_id).sum())

    def loss(self, model: Transformer, batch: TranslationBatch) -> Tensor:
        """The loss summed over the labels of a batch; padding has none."""
        logits, extra = self._logits(model, batch)
        if self.options.r_drop:
            again, more = self._logits(model, batch)
            extra = extra + more + self.options.r_drop * 2 * divergence(logits, again)
            return (self._cross_entropy(logits, batch) + self._cross_entropy(again, batch) + extra) / 2
        return self._cross_entropy(logits, batch) + extra

    def _logits(self, model: Transformer, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
        """The logits (labels,V), and the weighted loss of the guided head."""
        arguments = batch.input_ids, batch.source_ids, batch.source_lengths
        if self.options.guided_alignment:
            states, log_map = decode_with_map(model, *arguments, self.options.guided_head)
            extra = self.options.guided_alignment * guided_loss(log_map, batch.links)
        else:
            states = model(*arguments)
            extra = states.new_zeros(())
        return model.project(states[batch.labels != self.model_config.pad_id]).float(), extra

    def _cross_entropy(self, logits: Tensor, batch: TranslationBatch) -> Tensor:
        labels = batch.labels[batch.labels != self.model_config.pad_id]
        return smoothed_cross_entropy(logits, labels, self.config.label_smoothing)

    def evaluate(self, checkpoint: Checkpoint) -> Iterator[DevScore]:
        for name, file in self.dev.items():
            for result in evaluate_pairs(checkpoint, file.pairs):
                title = f"{name} {result.source_language}-{result.target_language}"
                yield DevScore(title, {"bleu": result.score.bleu, "chrf": result.score.chrf})

    def metadata(self) -> dict[str, Any]:
        first, second = self.config.data.languages
        return {
            "task": "translate",
            "languages": [first, second],
            "directions": [[first, second], [second, first]],
        }


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """The mean of both Kullback-Leibler divergences of two sets of logits (N,V), in nats, summed over rows."""
    one, other = first.log_softmax(-1), second.log_softmax(-1)
    return ((one.exp() - other.exp()) * (one - other)).sum() / 2
