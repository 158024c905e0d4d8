from pathlib import Path

import pytest
import torch

from model.__main__ import main
from model.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from model.data import read_pairs
from model.distill import cross_entropy, distil, dual_cross_entropy, keep_best
from model.evaluation import translate_texts
from model.tokenizer import Tokenizer
from tests.model.samples import PAIRS, make_model

METADATA = {"task": "translate", "languages": ["en", "de"], "directions": [["en", "de"], ["de", "en"]]}


@pytest.fixture
def checkpoint(tokenizer: Tokenizer) -> Checkpoint:
    return Checkpoint(make_model(vocab_size=tokenizer.vocab_size, max_seq_len=64), tokenizer, METADATA)


def test_cross_entropy_is_the_mean_of_the_target_tokens_cost(checkpoint: Checkpoint) -> None:
    costs = {is_back: cross_entropy(checkpoint, PAIRS, is_back, max_rows=7) for is_back in (False, True)}
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    for is_back, language in ((False, "de"), (True, "en")):
        for (first, second), cost in zip(PAIRS, costs[is_back], strict=True):
            source, target = (second, first) if is_back else (first, second)
            ids = [tokenizer.token_id(f"<2{language}>"), *tokenizer.encode(source), 2]
            wanted = [*tokenizer.encode(target), 2]
            states = model(torch.tensor([[1, *wanted[:-1]]]), torch.tensor([ids]), torch.tensor([len(ids)]))
            log_probs = model.project(states[0]).log_softmax(-1)
            assert cost == pytest.approx(-log_probs[range(len(wanted)), wanted].mean().item(), rel=1e-3)
    wanted_doubts = [abs(a - b) + (a + b) / 2 for a, b in zip(costs[False], costs[True], strict=True)]
    assert dual_cross_entropy(checkpoint, PAIRS) == pytest.approx(wanted_doubts, rel=1e-3)


def test_a_pair_beyond_the_positions_is_beyond_belief(checkpoint: Checkpoint) -> None:
    long = ("dog " * 100, "Hund")
    assert dual_cross_entropy(checkpoint, [PAIRS[0], long])[1] == float("inf")
    assert keep_best([PAIRS[0], long], [1.0, float("inf")], 0.5) == [PAIRS[0]]


def test_the_least_doubtful_are_kept_in_their_order() -> None:
    assert keep_best(PAIRS[:4], [0.4, 0.1, 0.3, 0.2], 0.75) == PAIRS[1:4]


def test_each_source_is_translated_once_and_stays_in_its_column(checkpoint: Checkpoint) -> None:
    pairs = [("The dog sleeps.", "Der Hund schläft."), ("The dog sleeps.", "Es schläft der Hund.")]
    made = distil(checkpoint, pairs, beam_size=2)
    [there] = translate_texts(checkpoint, ["The dog sleeps."], ("en", "de"), 2)
    back = translate_texts(checkpoint, [german for _, german in pairs], ("de", "en"), 2)
    assert made["en-de"] == [("The dog sleeps.", there)]
    assert made["de-en"] == [(english, german) for english, (_, german) in zip(back, pairs, strict=True)]


def test_a_model_of_one_direction_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.metadata = METADATA | {"directions": [["en", "de"]]}
    with pytest.raises(CheckpointError, match="does not translate two languages both ways"):
        distil(checkpoint, PAIRS, 1)


def test_commands_write_pairs(checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(checkpoint, tmp_path / "model")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:4]), encoding="utf-8")
    arguments = [str(tmp_path / "model"), str(pairs), str(tmp_path / "out.tsv")]
    assert main(["filter", *arguments, "--keep", "0.5"]) == 0
    assert len(read_pairs(tmp_path / "out.tsv").pairs) == 2
    assert main(["distill", *arguments, "--beam-size", "1"]) == 0
    assert {pair[0] for pair in read_pairs(tmp_path / "out.en-de.tsv").pairs} <= {pair[0] for pair in PAIRS[:4]}
    assert {pair[1] for pair in read_pairs(tmp_path / "out.de-en.tsv").pairs} <= {pair[1] for pair in PAIRS[:4]}
    assert "2 of 4 pairs" in capsys.readouterr().out
    assert main(["filter", *arguments, "--keep", "2"]) == 2
    assert "--keep is 2.0, allowed: above 0, at most 1" in capsys.readouterr().err
