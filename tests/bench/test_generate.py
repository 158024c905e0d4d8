"""The generation benchmark: the same model on all sides, what is refused, the tables' figures and the charts."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.decoding import Threads
from bench.generate import GenerateOptions, run_generate
from bench.generate_arrivals import BatchAtATime, GenerateLoad, capacity, run_load
from bench.generate_batches import CaseResult, Measured, compare_outputs, fastest, gaps, run_cases
from bench.generate_models import PreparedDecoder, Shape, prepare_decoder, random_decoder, spelling, word_tokenizer
from bench.generate_plots import plot_generate
from bench.generation import EngineGenerator, Output, Prompt, random_prompts
from bench.models import BenchError
from bench.peers.ctranslate2_generator import Ctranslate2Generator
from bench.peers.transformers_generator import CACHES, TransformersGenerator
from bench.rounds import Spread

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
def ours(prepared: PreparedDecoder) -> Iterator[EngineGenerator]:
    generator = EngineGenerator(prepared.bundle, "fp32", Threads(2, 1))
    yield generator
    generator.close()


@pytest.fixture
def theirs(prepared: PreparedDecoder) -> Iterator[Ctranslate2Generator]:
    generator = Ctranslate2Generator(prepared.ctranslate2, "fp32", Threads(2, 1))
    yield generator
    generator.close()


def token_ids(outputs: Sequence[Output]) -> list[tuple[int, ...]]:
    return [output.token_ids for output in outputs]


def test_all_sides_continue_alike(
    prepared: PreparedDecoder, ours: EngineGenerator, theirs: Ctranslate2Generator
) -> None:
    prompts = random_prompts(3, 300, (8, 8), (12, 12))
    expected = TransformersGenerator(prepared.folder, 1, CACHES[0]).generate(prompts)
    static = TransformersGenerator(prepared.folder, 1, CACHES[1]).generate(prompts)
    assert token_ids(static) == token_ids(expected)
    for side in (ours, theirs):
        found = side.generate(prompts)
        assert token_ids(found) == token_ids(expected)
        assert all(len(output.times) == 12 and sorted(output.times) == list(output.times) for output in found)
    assert compare_outputs(expected, ours, prompts).equal_tokens == 1.0


def test_each_output_has_its_own_length_and_prompt(ours: EngineGenerator, theirs: Ctranslate2Generator) -> None:
    prompts = random_prompts(5, 300, (3, 20), (2, 15))
    alone = [ours.generate([prompt])[0].token_ids for prompt in prompts]
    assert [len(ids) for ids in alone] == [prompt.max_new_tokens for prompt in prompts]
    assert token_ids(ours.generate(prompts)) == token_ids(theirs.generate(prompts)) == alone
    for calls in (ours.single_loops(), theirs.single_workers()):
        assert len(calls) == 2
        assert [token_ids(call(prompts)) for call in calls] == [alone, alone]


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


class Clock:
    """Time that only passes when somebody spends it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """Writes `tokens` in turn, one in each `seconds`."""

    name, setting = "fake", "1x1"

    def __init__(
        self, tokens: Sequence[int], seconds: float = 1.0, clock: Clock | None = None, precision: str = "fp32"
    ) -> None:
        self.tokens, self.seconds, self.precision = tokens, seconds, precision
        self.clock = clock or Clock()

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        start, num = self.clock.now, max(prompt.max_new_tokens for prompt in prompts)
        self.clock.now += num * self.seconds
        times = [start + (place + 1) * self.seconds for place in range(num)]
        ids = [self.tokens[place % len(self.tokens)] for place in range(num)]
        return [Output(tuple(ids[: each.max_new_tokens]), tuple(times[: each.max_new_tokens])) for each in prompts]

    def close(self) -> None:
        """Nothing to free."""


PROMPTS = [Prompt((1, 2), 20), Prompt((3, 4), 20)]


def test_another_model_is_refused_in_float32_but_not_in_int8() -> None:
    reference = Fake(range(20)).generate(PROMPTS)
    other = [*range(17), 0, 0, 0]
    with pytest.raises(BenchError, match=r"only 85.0% of the tokens of fake"):
        compare_outputs(reference, Fake(other), PROMPTS)
    found = compare_outputs(reference, Fake(other, precision="int8"), PROMPTS)
    assert (found.equal_tokens, found.equal_outputs, found.different_tokens) == (0.85, 0.0, 0.85)


def test_a_model_that_repeats_itself_is_refused() -> None:
    same = Fake([7])
    with pytest.raises(BenchError, match="repeats itself"):
        compare_outputs(same.generate(PROMPTS), same, PROMPTS)


def test_an_output_that_ends_too_soon_is_refused() -> None:
    class Short(Fake):
        def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
            return [Output(output.token_ids[:-1], output.times[:-1]) for output in super().generate(prompts)]

    with pytest.raises(BenchError, match="wrote 19 tokens, asked for: 20"):
        compare_outputs(Fake(range(20)).generate(PROMPTS), Short(range(20)), PROMPTS)


def test_the_fastest_setting_is_taken() -> None:
    quick, slow = FakeSlow(0.0), FakeSlow(0.02)
    assert fastest([slow, quick], PROMPTS) is quick
    assert fastest([slow], PROMPTS) is slow


class FakeSlow(Fake):
    """Takes real time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(range(20))
        self.wait = seconds

    def generate(self, prompts: Sequence[Prompt]) -> list[Output]:
        threading.Event().wait(self.wait)
        return super().generate(prompts)


def test_speeds_first_tokens_gaps_and_ratios_are_those_of_the_outputs() -> None:
    clock = Clock()
    ours, peer = Fake(range(20), 0.5, clock), Fake(range(20), 2.0, clock)
    ours.name, peer.name = "polyhead", "ctranslate2"
    (case,) = run_cases("gpt2", [[ours], [peer]], PROMPTS, rounds=2, streams=(2,), clock=clock)
    our, their = case.sides
    assert (our.num_tokens, our.tokens_per_second, their.tokens_per_second) == (40, 4.0, 1.0)
    assert set(our.first_tokens) == set(our.gaps) == {0.5}
    assert (len(our.first_tokens), len(our.gaps)) == (4, 4 * 19)
    entry = case.to_dict()["sides"][0]
    assert entry["ratios"] == {"ctranslate2 fp32": 4.0}
    assert (entry["gap_p50_milliseconds"], entry["first_token_p99_milliseconds"]) == (500.0, 500.0)


def test_gaps_never_cross_from_one_output_to_the_next() -> None:
    assert gaps([Output((1, 2), (1.0, 3.0)), Output((1,), (9.0,)), Output((), ())]) == [2.0]


def test_no_prompt_joins_a_batch_that_runs() -> None:
    side, batches = Fake(range(20)), list[int]()
    started, gate = threading.Event(), threading.Event()

    def call(prompts: Sequence[Prompt]) -> list[Output]:
        batches.append(len(prompts))
        started.set()
        assert gate.wait(30)
        return side.generate(prompts)

    server = BatchAtATime("batch at a time", side, [call], max_batch_size=3)
    first = server.submit(PROMPTS[0])
    assert started.wait(30)
    others = [server.submit(prompt) for prompt in PROMPTS * 2]
    gate.set()
    outputs = [future.result(30) for future in (first, *others)]
    server.close()
    assert batches == [1, 3, 1]
    assert [len(output.token_ids) for output in outputs] == [20] * 5


def test_an_error_reaches_everybody_who_waits() -> None:
    def call(prompts: Sequence[Prompt]) -> list[Output]:
        raise RuntimeError(f"no room for {len(prompts)}")

    server = BatchAtATime("broken", Fake([1]), [call])
    future = server.submit(PROMPTS[0])
    with pytest.raises(RuntimeError, match="no room for 1"):
        future.result(30)
    server.close()


def test_capacity_counts_requests_by_the_clock() -> None:
    clock = Clock()
    assert capacity(Fake(range(20), 0.5, clock), PROMPTS, clock) == 0.2


def test_all_that_arrives_is_answered(ours: EngineGenerator) -> None:
    prompts = random_prompts(6, 300, (3, 20), (2, 15))
    load = run_load("gpt2", ours, prompts, 0.8, 1000.0)
    assert load.num_tokens == sum(prompt.max_new_tokens for prompt in prompts)
    assert len(load.gaps) == load.num_tokens - 6
    assert all(0 < first <= last for first, last in zip(load.first_tokens, load.latencies, strict=True))


def test_everything_is_measured_printed_and_drawn(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = GenerateOptions(
        streams=(1, 8), rounds=1, new_tokens=12, num_arrivals=4, loads=(0.5,), shapes=SHAPES, cache=cache
    )
    results = run_generate(options).to_dict()
    assert [(case["model"], case["streams"]) for case in results["batches"]] == [*product(FAMILIES, (1, 8))]
    sides = {(side["side"], side["precision"]) for side in results["batches"][0]["sides"]}
    assert sides == {("transformers", "fp32"), *product(("ctranslate2", "polyhead"), ("fp32", "int8"))}
    others = [(side["side"], side["precision"]) for case in results["batches"][2:] for side in case["sides"]]
    assert "transformers" not in {name for name, _ in others}
    assert ("polyhead", "int4") in others
    assert ("ctranslate2", "int4") not in others
    assert [load["side"] for load in results["arrivals"]] == [
        "polyhead",
        "polyhead batch at a time",
        "ctranslate2 gathered",
    ]
    printed = capsys.readouterr().out
    assert "polyhead fp32: 100.0% of tokens" in printed
    assert printed.count("| 8 | polyhead | int8 |") == 2
    has_genai = importlib.util.find_spec("onnxruntime_genai") is not None
    assert ("not measured: onnxruntime-genai int4: pip install" in printed) is not has_genai
    assert len(plot_generate(results, tmp_path)) == 2


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
    results = run_generate(options).to_dict()
    (case,) = results["batches"]
    assert [(side["side"], side["precision"]) for side in case["sides"]] == [
        ("transformers", "fp32"),
        ("polyhead", "int4"),
    ]
    assert not results["arrivals"]
    assert "not measured: arrivals in int4: CTranslate2 has none of these" in capsys.readouterr().out


def test_what_was_measured_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    sides = tuple(
        Measured(name, precision, "2x1", 2, 40, Spread((1.0, 2.0, 3.0)), (0.1,), (0.01,))
        for name, precision in (("polyhead", "int8"), ("ctranslate2", "int8"), ("onnxruntime-genai", "int4"))
    )
    cases = [CaseResult(model, streams, sides).to_dict() for model in ("gpt2", "llama") for streams in (1, 8)]
    loads = [
        GenerateLoad("gpt2", name, "int8", "2x1", share, 3.0, 9.0, (0.1, 0.2), (0.01,), (0.5, 0.6), 40).to_dict()
        for name in ("polyhead", "polyhead batch at a time", "ctranslate2 gathered")
        for share in (0.4, 0.8)
    ]
    assert plot_generate({"batches": [], "arrivals": []}, tmp_path) == []
    written = plot_generate({"batches": cases, "arrivals": loads}, tmp_path)
    assert [path.name for path in written] == ["benchmark-generate.png", "benchmark-generate-arrivals.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_streams_that_are_not_measured_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["generate", "--streams", "7"])
    assert stopped.value.code == 2
    assert "invalid choice: 7" in capsys.readouterr().err
