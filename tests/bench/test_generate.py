"""The generation benchmark: the same model on all sides, what is refused, and a whole run with tiny models."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.generate import CHARTS, GenerateOptions, capacity, compare_sides, random_prompts, run_generate
from bench.generate_models import PreparedDecoder, Shape, prepare_decoder, random_decoder, spelling, word_tokenizer
from bench.loads import Load, in_process, run_load
from bench.ours import EngineDecoder
from bench.peers.ctranslate2 import Ctranslate2Generator
from bench.peers.libraries import CACHES, TransformersGenerator
from bench.plot import draw
from bench.side import BenchError, Output, Text, Threads
from tests.bench.fakes import Fake

FAMILIES = ("gpt2", "llama")
SIZES = {"num_layers": 2, "d_model": 32, "num_heads": 2, "num_kv_heads": 1, "d_ff": 64, "vocab_size": 300}


SHAPES = {family: Shape(family, max_tokens=256, **SIZES) for family in FAMILIES}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=FAMILIES)
def prepared(request: pytest.FixtureRequest, cache: Path) -> PreparedDecoder:
    return prepare_decoder(SHAPES[request.param], cache)


@pytest.fixture
def ours(prepared: PreparedDecoder) -> Iterator[EngineDecoder]:
    generator = EngineDecoder(prepared.bundle, "fp32", Threads(2, 1))
    yield generator
    generator.close()


@pytest.fixture
def theirs(prepared: PreparedDecoder) -> Iterator[Ctranslate2Generator]:
    generator = Ctranslate2Generator(prepared.ctranslate2, "fp32", Threads(2, 1))
    yield generator
    generator.close()


def token_ids(outputs: Sequence[Output]) -> list[tuple[int, ...]]:
    return [output.token_ids for output in outputs]


def test_all_sides_continue_alike(prepared: PreparedDecoder, ours: EngineDecoder, theirs: Ctranslate2Generator) -> None:
    prompts = random_prompts(3, 300, (8, 8), (12, 12))
    reference, static = (TransformersGenerator(prepared.folder, 1, cache) for cache in CACHES)
    expected = reference.prepare(prompts)()
    assert token_ids(static.prepare(prompts)()) == token_ids(expected)
    for side in (ours, theirs):
        found = side.prepare(prompts)()
        assert token_ids(found) == token_ids(expected)
        assert all(len(output.times) == 12 and sorted(output.times) == list(output.times) for output in found)
    assert [row["equal_tokens"] for row in compare_sides([[reference], [ours], [theirs]], prompts)] == [1.0, 1.0]


def test_each_output_has_its_own_length_and_prompt(ours: EngineDecoder, theirs: Ctranslate2Generator) -> None:
    prompts = random_prompts(5, 300, (3, 20), (2, 15))
    alone = [ours.run([prompt])[0].token_ids for prompt in prompts]
    assert [len(ids) for ids in alone] == [prompt.max_new_tokens for prompt in prompts]
    for side in (ours, theirs):
        assert token_ids(side.prepare(prompts)()) == token_ids(side.run(prompts)) == alone
        assert token_ids(asyncio.run(side.ask(prompts))) == alone


def test_the_end_token_is_never_the_likeliest() -> None:
    model = random_decoder(Shape("gpt2", **SIZES))
    prompts = random_prompts(20, 300, (8, 8), (1, 1))
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([prompt.token_ids for prompt in prompts])).logits
    assert (logits.max(-1).values > logits[..., 0] + 0.1).all()
    assert len(set(logits[:, -1].argmax(-1).tolist())) > 10


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(BenchError, match="'rnn', allowed: gpt2, llama"):
        random_decoder(Shape("rnn", **SIZES))


def test_every_word_is_one_token() -> None:
    tokenizer = word_tokenizer(300)
    assert tokenizer.convert_tokens_to_ids([spelling(token_id) for token_id in range(300)]) == list(range(300))


PROMPTS = [Text((1, 2), 20), Text((3, 4), 20)]


def test_an_output_that_ends_too_soon_is_refused() -> None:
    class Short(Fake):
        def run(self, items: Sequence[Text]) -> list[Output]:
            return [Output(output.token_ids[:-1], output.times[:-1]) for output in super().run(items)]

    with pytest.raises(BenchError, match="wrote 19 tokens, asked for: 20"):
        list(compare_sides([[Fake(range(20))], [Short(range(20))]], PROMPTS))


def test_capacity_counts_requests_by_the_clock() -> None:
    side = Fake(range(20))

    def slow() -> list[Output]:
        time.sleep(0.05)
        return []

    side.prepare = lambda items: slow  # type: ignore[method-assign]
    assert 20 < capacity(side, PROMPTS) <= 40


def test_all_that_arrives_is_answered(ours: EngineDecoder) -> None:
    prompts = random_prompts(6, 300, (3, 20), (2, 15))
    found = run_load(in_process(ours).connect, prompts, Load(rate=1000.0))
    outputs = [output for answer in found.answers for output in answer.answer]
    assert [len(output.token_ids) for output in outputs] == [prompt.max_new_tokens for prompt in prompts]
    for answer, output in zip(found.answers, outputs, strict=True):
        assert answer.asked < output.times[0] <= output.times[-1] <= answer.asked + answer.seconds


def test_everything_is_measured_printed_and_drawn(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = GenerateOptions(
        streams=(1, 8), rounds=1, new_tokens=12, num_arrivals=4, loads=(0.5,), shapes=SHAPES, cache=cache
    )
    results = run_generate(options)
    rows = results["batches"]
    assert list(dict.fromkeys((row["model"], row["streams"]) for row in rows)) == [*product(FAMILIES, (1, 8))]
    sides = {(row["side"], row["precision"]) for row in rows if row["model"] == "gpt2" and row["streams"] == 1}
    assert sides == {("transformers", "fp32"), *product(("ctranslate2", "polyhead"), ("fp32", "int8"))}
    others = [(row["side"], row["precision"]) for row in rows if row["model"] == "llama"]
    assert "transformers" not in {name for name, _ in others}
    assert ("polyhead", "int4") in others
    assert ("ctranslate2", "int4") not in others
    ours = next(row for row in rows if (row["side"], row["precision"]) == ("polyhead", "int8"))
    assert set(ours["ratios"]) == {"transformers fp32", "ctranslate2 fp32", "ctranslate2 int8"}
    assert 0 <= ours["gap_p50_milliseconds"] <= ours["gap_p99_milliseconds"]
    assert [load["side"] for load in results["arrivals"]] == [
        "polyhead",
        "polyhead batch at a time",
        "ctranslate2 gathered",
    ]
    printed = capsys.readouterr().out
    assert "| gpt2 | polyhead | fp32 |  | 100.0% | 100.0% |" in printed
    assert printed.count("| 8 | polyhead | int8 |") == 2
    has_genai = importlib.util.find_spec("onnxruntime_genai") is not None
    assert ("not measured: onnxruntime-genai int4: pip install" in printed) is not has_genai
    assert len(draw(results, tmp_path, CHARTS)) == 2


def test_int4_alone_is_measured_without_the_peer_that_has_none(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = GenerateOptions(
        precisions=("int4",),
        parts=("gpt2", "arrivals"),
        streams=(1,),
        rounds=1,
        new_tokens=12,
        shapes=SHAPES,
        cache=cache,
    )
    results = run_generate(options)
    assert [(row["side"], row["precision"]) for row in results["batches"]] == [
        ("transformers", "fp32"),
        ("polyhead", "int4"),
    ]
    assert "arrivals" not in results
    assert "not measured: arrivals in int4: CTranslate2 has none of these" in capsys.readouterr().out


def test_streams_that_are_not_measured_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["generate", "--streams", "7"])
    assert stopped.value.code == 2
    assert "invalid choice: 7" in capsys.readouterr().err
