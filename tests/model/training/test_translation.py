from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from model.config import ConfigError
from model.corpus.augmentation import Augmentation
from model.tokenizer import EOS, language_tag
from model.training.config import DataConfig, TrainSource, TranslationConfig, load_training_config
from model.training.objectives.translation import Translation
from tests.model.samples import PAIRS, make_config, make_model, pair_file, tiny_tokenizer, training_config

TOKENIZER = tiny_tokenizer()


def objective(max_tokens: int = 64, augmentation: Augmentation | None = None) -> Translation:
    data = DataConfig(("en", "de"), (TrainSource("pairs.tsv"),), (), max_tokens, augmentation or Augmentation())
    config = training_config(data=data)
    return Translation(config, TOKENIZER, make_config(vocab_size=TOKENIZER.vocab_size, max_seq_len=64), {})


def prepared(translation: Translation, seed: int = 1) -> list[tuple[str, str]]:
    """Source and target text of what is trained on, with the tag and the end of the source."""
    examples, _ = translation.examples(pair_file(), 64)
    rows = translation.prepare(examples, np.random.default_rng(seed))
    decode = TOKENIZER.decode
    return [(decode(row[0], skip_special_tokens=False), decode(row[1])) for row in rows]


def test_pairs_are_trained_on_both_ways() -> None:
    there = [(f"{language_tag('de')} {a}{EOS}", b) for a, b in PAIRS]
    back = [(f"{language_tag('en')} {b}{EOS}", a) for a, b in PAIRS]
    assert sorted(prepared(objective())) == sorted([*there, *back])


def test_a_pair_is_augmented_anew_each_round() -> None:
    translation = objective(augmentation=Augmentation(lower_case=0.5))
    first, second = prepared(translation, 1), prepared(translation, 2)
    assert first == prepared(translation, 1) != second
    assert sorted(text.lower() for _, text in first) == sorted(text.lower() for _, text in second)


def test_pairs_that_are_too_long_are_left_out_and_told() -> None:
    lengths = [max(map(len, TOKENIZER.encode_batch(list(pair)))) + 2 for pair in PAIRS]
    limit = sorted(lengths)[len(lengths) // 2]
    translation = objective(limit)
    _, num_left_out = translation.examples(pair_file(), limit)
    assert num_left_out == sum(length > limit for length in lengths)
    assert len(prepared(translation)) == 2 * (len(PAIRS) - num_left_out)
    assert translation.examples(pair_file(), 3) == ([], len(PAIRS))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            'languages = ["en", "fr"]\naugmentation = {quoted = 0.1}',
            "quoted needs languages of en, de, not fr",
        ),
        (
            'languages = ["en", "de"]\naugmentation = {joined = 2}',
            "joined is 2: input should be less than",
        ),
        ('languages = ["en", "de"]\naugmentation = {yelled = 1}', "yelled: is no field of a training configuration"),
    ],
)
def test_a_fault_of_the_augmentation_is_named(tmp_path: Path, data: str, message: str) -> None:
    path = tmp_path / "run.toml"
    model = '[model]\narchitecture = "encoder_decoder"\nnum_encoder_layers = 1\nnum_decoder_layers = 1\n'
    path.write_text(f'name = "x"\n{model}[data]\n{data}\n[[data.train]]\npath = "a.tsv"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_training_config(path)


def test_r_drop_is_two_passes_and_their_divergence() -> None:
    kind = TranslationConfig(r_drop=2.0)
    config = training_config(objective=kind, model={"dropout": 0.3}, label_smoothing=0.1)
    translation = Translation(config, TOKENIZER, make_config(vocab_size=TOKENIZER.vocab_size, max_seq_len=64), {})
    examples, _ = translation.examples(pair_file(), 64)
    batch = translation.collate(translation.prepare(examples[:5], np.random.default_rng(1)), np.random.default_rng(1))
    model = make_model(vocab_size=TOKENIZER.vocab_size, max_seq_len=64, dropout=0.3).train()
    is_label = batch.labels != 0
    torch.manual_seed(3)
    passes = [model.project(model(batch.input_ids, batch.source_ids, batch.source_lengths)[is_label]) for _ in range(2)]
    losses = [cross_entropy(logits, batch.labels[is_label], reduction="sum", label_smoothing=0.1) for logits in passes]
    one, other = (logits.log_softmax(-1) for logits in passes)
    apart = kl_div(one, other, reduction="sum", log_target=True) + kl_div(other, one, reduction="sum", log_target=True)
    wanted = (sum(losses) + 2.0 * apart) / 2
    wanted_gradients = torch.autograd.grad(wanted, list(model.parameters()))
    torch.manual_seed(3)
    loss = translation.loss(model, batch)
    torch.testing.assert_close(loss, wanted)
    for gradient, expected in zip(torch.autograd.grad(loss, list(model.parameters())), wanted_gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("direction", "count"), [("both", 40), ("there", 20), ("back", 20)])
def test_a_file_is_translated_in_its_direction(direction: str, count: int) -> None:
    file = pair_file()
    file.direction = direction
    examples, _ = objective().examples(file, 64)
    assert len(examples) == count
    assert {example[2] for example in examples} == {"both": {False, True}, "there": {False}, "back": {True}}[direction]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("[objective]\nkind = 'translation'\nr_drop = 1.0", "r_drop is 1, which needs model.dropout above 0"),
        ("[objective]\nkind = 'translation'\nguided_alignment = 0.05", "but no file of data.train has links"),
        ("[objective]\nkind = 'translation'\nguided_head = 8", "guided_head is 8, allowed: 0 to 7"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "run.toml"
    model = '[model]\narchitecture = "encoder_decoder"\nnum_encoder_layers = 1\nnum_decoder_layers = 1\ndropout = 0.0\n'
    data = '[data]\nlanguages = ["en", "de"]\n[[data.train]]\npath = "a.tsv"\n'
    path.write_text(f'name = "x"\n{lines}\n{model}{data}', encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_training_config(path)
