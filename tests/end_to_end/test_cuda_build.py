"""The shipped bundles served by a CUDA build of ONNX Runtime: every route, eight clients at once, and the end.

On stub libraries of CUDA nothing is computed, so lengths and types are asked for, and no text. Skipped where no build
with the CUDA provider is installed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import onnxruntime as ort
import pytest

from tests.end_to_end.conftest import ROOT, Server, serving

pytestmark = pytest.mark.skipif(
    "CUDAExecutionProvider" not in ort.get_available_providers(),
    reason="this ONNX Runtime has no CUDA provider: install onnxruntime-gpu, with a GPU or stub libraries of CUDA",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ROOT / "bundles", device="cuda", request_timeout_seconds=300) as served:
        yield served


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    answer = server.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def generate(server: Server, length: int, **parameters: object) -> int:
    """How many tokens a continuation came to have."""
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": length, "details": True} | parameters}
    details = post(server, "/generate", body)["details"]
    assert len(details["tokens"]) == details["generated_tokens"]
    return int(details["generated_tokens"])


def test_every_head_answers(server: Server) -> None:
    assert server.client.get("/health").status_code == 200
    translated = server.translate(["A dog.", "Two cats sleep."]).json()["translatedText"]
    assert [type(text) for text in translated] == [str, str]
    greedy = {"q": ["A dog.", "Two cats sleep."], "source": "en", "target": "de", "beam_size": 1}
    assert len(post(server, "/translate", greedy)["translatedText"]) == 2  # several steps between two looks
    vectors = post(server, "/embed", {"inputs": ["a dog", "two cats"]})
    assert [len(vector) for vector in vectors] == [len(vectors[0])] * 2
    assert len(post(server, "/embed_all", {"inputs": "a dog"})[0]) > 2
    for parameters in ({}, {"top_n_tokens": 3}, {"temperature": 0.8, "seed": 1}):
        assert 0 < generate(server, 5, **parameters) <= 5
    beams = {"max_new_tokens": 5, "beam_size": 3}
    assert "generated_text" in post(server, "/generate", {"inputs": "Once", "parameters": beams})
    body = {"model": "generate-en", "prompt": "Once", "max_tokens": 4, "logprobs": 2, "echo": True}
    assert len(post(server, "/v1/completions", body)["choices"]) == 1
    for explained in ({"inputs": "a dog"}, {"q": "A dog.", "source": "en", "target": "de"}, {"prompt": "Once"}):
        assert post(server, "/attention", explained)["source" if "prompt" not in explained else "task"]


def test_eight_clients_at_once_while_tables_grow(server: Server) -> None:
    def ask(number: int) -> int:
        words = " ".join(["dog"] * (3 + 20 * (number % 3)))
        assert server.translate([words] * 3).status_code == 200
        return generate(server, 20 + 35 * (number % 4))

    with ThreadPoolExecutor(8) as clients:
        assert all(count > 0 for count in clients.map(ask, range(24)))


def test_steps_ran_as_cuda_graphs(server: Server) -> None:
    for model in ("en-de", "generate-en"):
        captured, replayed, ordinary = (
            server.metric(f'polyhead_device_steps_total{{model="{model}",run="{run}"}}')
            for run in ("captured", "replayed", "ordinary")
        )
        assert replayed > captured > 0
        assert ordinary == 0


def test_sigterm_answers_what_was_accepted() -> None:
    with serving(ROOT / "bundles", device="cuda") as served, ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(generate, served, 200) for _ in range(8)]
        served.wait_for_rows(in_use=True)
        served.process.send_signal(signal.SIGTERM)
        assert all(answer.result() > 0 for answer in answers)
        assert served.process.wait(60) == 0
