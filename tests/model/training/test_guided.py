from pathlib import Path

import numpy as np
import pytest
import torch

from model.alignment import argmax_links, target_rows
from model.attention_maps import decoder_maps
from model.data import DataError
from model.training.config import DataConfig, TrainSource, TranslationConfig
from model.training.guided import (
    TokenLink,
    decode_with_map,
    guided_layer,
    guided_loss,
    link_weights,
    token_links,
)
from model.training.objectives.translation import Translation
from tests.model.samples import PAIRS, make_config, make_model, pair_file, tiny_tokenizer, training_config

TOKENIZER = tiny_tokenizer()


@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 0), (3, 1)])
@pytest.mark.parametrize("num_kv_heads", [0, 1])
def test_the_map_and_the_states_are_those_of_the_model(layers: int, layer: int, num_kv_heads: int) -> None:
    model = make_model(num_decoder_layers=layers, num_kv_heads=num_kv_heads)
    source, lengths = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]), torch.tensor([4, 2])
    target = torch.tensor([[1, 10, 11], [1, 12, 13]])
    for head in (0, 1):
        states, log_map = decode_with_map(model, target, source, lengths, head)
        torch.testing.assert_close(states, model(target, source, lengths))
        _, maps = decoder_maps(model, target, model.encode(source, lengths), lengths)
        assert guided_layer(model) == layer
        torch.testing.assert_close(log_map.exp(), maps[layer].weights[:, head])


def test_links_of_words_become_links_of_their_tokens() -> None:
    source, target = [[5, 6], [7], [8]], [[9], [10, 11]]
    links = token_links([(0, 1), (2, 1), (1, 0)], source, target, 1, 1)
    assert links == [TokenLink((1, 2, 4), (2, 3)), TokenLink((3,), (1,))]
    weights = link_weights([links, []], 4, 6)
    assert weights[0, 2].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 0, 1 / 3, 0])
    assert weights[0, 1].tolist() == [0, 0, 0, 1, 0, 0]
    assert weights[0, 0].sum() == weights[1].sum() == 0
    with pytest.raises(ValueError, match="leads beyond the 3 and 2 words"):
        token_links([(3, 0)], source, target, 1, 1)


def test_the_loss_is_the_cross_entropy_of_linked_rows() -> None:
    log_map = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]]).log()
    weights = link_weights([[TokenLink((1,), (1,))]], 2, 3)
    assert guided_loss(log_map, weights).item() == pytest.approx(-np.log(0.8))


def objective(bpe_dropout: float = 0.0) -> Translation:
    source = TrainSource("pairs.tsv", links="pairs.links")
    kind = TranslationConfig(guided_alignment=0.5, bpe_dropout=bpe_dropout)
    config = training_config(objective=kind, data=DataConfig(("en", "de"), (source,), (), 64), model={"num_heads": 2})
    return Translation(config, TOKENIZER, make_config(vocab_size=TOKENIZER.vocab_size, max_seq_len=64), {})


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_batches_link_the_tokens_of_linked_words_both_ways(dropout: float) -> None:
    translation = objective(dropout)
    file = pair_file([("The dog sleeps.", "Der Hund schläft.")])
    file.links = ["0-0 1-1 2-2 3-3"]
    examples, _ = translation.examples(file, 64)
    rows = translation.prepare(examples, np.random.default_rng(1))
    batch = translation.collate(rows, np.random.default_rng(1))
    assert batch.links.shape == (2, batch.input_ids.shape[1], batch.source_ids.shape[1])
    for row, length in enumerate(batch.source_lengths.tolist()):
        linked = batch.links[row].sum(-1)
        real = int((batch.labels[row] != 0).sum())
        # Each token that is read after the beginning, and no padding, is linked to tokens of the text.
        assert linked.tolist() == pytest.approx([0, *[1] * (real - 1), *[0] * (len(linked) - real)])
        assert batch.links[row, :, 0].sum() == batch.links[row, :, length - 1 :].sum() == 0


def test_a_head_learns_to_align() -> None:
    """Pairs of made-up words in reverse order, whose alignment no diagonal gives."""
    translation = objective()
    generator = np.random.default_rng(0)
    words = [text.split()[-1].strip(".?!") for text, _ in PAIRS[:8]]
    pairs = [[words[index] for index in generator.permutation(8)[:4]] for _ in range(40)]
    file = pair_file([(" ".join(pair), " ".join(reversed(pair))) for pair in pairs])
    file.links = ["0-3 1-2 2-1 3-0"] * len(pairs)
    examples, _ = translation.examples(file, 64)
    rows = translation.prepare(examples, generator)
    batch = translation.collate(rows, generator)
    torch.manual_seed(1)
    model = make_model(vocab_size=TOKENIZER.vocab_size, max_seq_len=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(250):
        optimizer.zero_grad()
        (translation.loss(model, batch) / len(rows)).backward()
        optimizer.step()
    _, log_map = decode_with_map(model, batch.input_ids, batch.source_ids, batch.source_lengths, 0)
    right = total = 0
    for row in range(len(rows)):
        wanted = batch.links[row, 1:].numpy()
        found = argmax_links(target_rows(log_map[row].exp().detach().numpy(), shifted=True))
        right += sum(wanted[target, source] > 0 for source, target in found)
        total += int((wanted.sum(-1) > 0).sum())
    assert right > 0.8 * total


def test_links_of_another_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    (tmp_path / "pairs.links").write_text("0-0\n", encoding="utf-8")
    config = objective().config
    with pytest.raises(DataError, match=r"pairs\.links has 1 lines, pairs\.tsv has 2 pairs"):
        Translation.read(config.data.train[0], config, tmp_path, lambda text: None)
