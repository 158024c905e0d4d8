import io
from pathlib import Path

import pytest
from rich.console import Console

from model.checkpoint import Checkpoint, CheckpointError
from model.embedding import mean_pooled
from model.embedding_evaluation import retrieval_accuracy
from model.perplexity import evaluate_text
from model.score_files import SearchOptions, score_files
from model.tokenizer import Tokenizer
from tests.model.samples import PAIRS, make_model


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def printed(console: Console) -> list[list[str]]:
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_embeddings_are_scored_by_what_each_file_holds(tmp_path: Path, tokenizer: Tokenizer, console: Console) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    (tmp_path / "sts.tsv").write_text("".join(f"{i % 6}\t{a}\t{b}\n" for i, (a, b) in enumerate(PAIRS)), "utf-8")
    model = make_model(architecture="encoder", vocab_size=tokenizer.vocab_size)
    metadata = {"task": "embed", "languages": ["en", "de"], "embedding": mean_pooled(32)}
    checkpoint = Checkpoint(model, tokenizer.with_end(), metadata)
    report = score_files(checkpoint, [tmp_path / "pairs.tsv", tmp_path / "sts.tsv"], SearchOptions(), console)
    there, back, rho = report["scores"]
    assert (there["direction"], back["direction"], rho["direction"]) == ("en-de", "de-en", "")
    assert (there["value"], back["value"]) == retrieval_accuracy(checkpoint, PAIRS)
    assert (rho["set"], rho["measure"], rho["pairs"]) == ("sts", "spearman", 20)
    assert -1 <= rho["value"] <= 1
    assert printed(console)[1] == ["pairs", "en-de", "accuracy", f"{there['value']:.4f}", "20"]


def test_a_decoder_is_scored_by_perplexity(tmp_path: Path, tokenizer: Tokenizer, console: Console) -> None:
    (tmp_path / "text.txt").write_text("The dog sleeps.\n\nThe cat eats.\n", encoding="utf-8")
    model = make_model(architecture="decoder", vocab_size=tokenizer.vocab_size)
    checkpoint = Checkpoint(model, tokenizer, {"task": "generate"})
    [record] = score_files(checkpoint, [tmp_path / "text.txt"], SearchOptions(), console)["scores"]
    wanted = evaluate_text(checkpoint, ["The dog sleeps.", "The cat eats."])
    assert record == {"set": "text", **wanted._asdict()}
    assert printed(console)[1][-1] == "6"


def test_a_task_without_a_measure_is_refused(tmp_path: Path, tokenizer: Tokenizer, console: Console) -> None:
    checkpoint = Checkpoint(make_model(vocab_size=tokenizer.vocab_size), tokenizer, {"task": "paint"})
    with pytest.raises(CheckpointError, match="task is 'paint', there are measures for: translate, embed, generate"):
        score_files(checkpoint, [tmp_path], SearchOptions(), console)
