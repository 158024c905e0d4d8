import pytest

from model import evaluation
from model.checkpoint import Checkpoint, CheckpointError
from model.evaluation import NumbersKept, evaluate_pairs, numbers_kept, score, translate_texts
from model.tokenizer import Tokenizer
from tests.model.samples import PAIRS, make_model


def test_scores_of_known_strings() -> None:
    references = ["The cat sat on the mat.", "It is raining today."]
    perfect = score(references, references)
    assert perfect.bleu == pytest.approx(100.0)
    assert perfect.chrf == pytest.approx(100.0)
    assert "tok:13a" in perfect.signature
    assert score(["x", "y"], references).bleu == pytest.approx(0.0, abs=1e-6)
    # 11 of 12 words, 8 of 10 pairs, 6 of 8 triples and 4 of 6 fours are right, and nothing is too short.
    part = score(["The cat sat on the rug.", "It is raining today."], references)
    assert part.bleu == pytest.approx(100 * (11 / 12 * 8 / 10 * 6 / 8 * 4 / 6) ** 0.25, abs=0.01)


@pytest.fixture
def checkpoint(tokenizer: Tokenizer) -> Checkpoint:
    metadata = {"task": "translate", "languages": ["en", "de"], "directions": [["en", "de"], ["de", "en"]]}
    return Checkpoint(make_model(vocab_size=tokenizer.vocab_size, max_seq_len=12), tokenizer, metadata)


def test_each_direction_reads_and_scores_its_own_columns(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def translate(
        checkpoint: Checkpoint, texts: list[str], direction: tuple[str, str], beam: int, penalty: float
    ) -> list[str]:
        asked.append((direction, beam, penalty))
        return [dict(PAIRS)[text] if direction[1] == "de" else "wrong" for text in texts]

    monkeypatch.setattr(evaluation, "translate_texts", translate)
    there, back = evaluate_pairs(checkpoint, PAIRS, 4, 0.6)
    assert (there.source_language, there.target_language) == ("en", "de")
    assert there.sources == [pair[0] for pair in PAIRS]
    assert there.score.bleu == pytest.approx(100.0)
    assert back.sources == [pair[1] for pair in PAIRS]
    assert back.score.bleu < 1
    assert asked == [(("en", "de"), 4, 0.6), (("de", "en"), 4, 0.6)]


def test_a_text_beyond_the_models_positions_is_cut(checkpoint: Checkpoint) -> None:
    long = " ".join(["Der Hund schläft."] * 20)
    texts = translate_texts(checkpoint, [long, "Hund"], ("de", "en"))
    assert len(texts) == 2
    assert texts[1] == translate_texts(checkpoint, ["Hund"], ("de", "en"))[0]


def test_another_task_is_refused(checkpoint: Checkpoint) -> None:
    checkpoint.metadata["task"] = "embed"
    with pytest.raises(CheckpointError, match="the checkpoint's task is 'embed', BLEU needs 'translate'"):
        next(evaluate_pairs(checkpoint, PAIRS))


def test_numbers_are_kept_where_their_values_are() -> None:
    references = ["Um 15:45 Uhr.", "1.000 Häuser", "Am 5. Mai 2021", "ohne", "3,5 km"]
    hypotheses = ["Es ist 15.45 Uhr", "1000 Häuser", "Am 5. März 2021", "7", "3,5 km oder 4"]
    assert numbers_kept(hypotheses, references, "de") == NumbersKept(kept=2, pairs=4)
    assert NumbersKept(2, 4).share == 0.5
    assert NumbersKept(0, 0).share == 1.0
