"""Tiny decoders on their whole way: exported, loaded, and served over real HTTP to the clients that people have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from huggingface_hub import InferenceClient

from export.convert import ExportOptions, export_bundle
from model import reference
from model.checkpoint import Checkpoint, load_checkpoint
from model.config import ModelConfig
from model.tokenizer import Tokenizer, train
from model.training.config import CausalLmConfig
from model.training.reports import Progress
from model.transformer import Transformer
from service.engine.core.observer import NullObserver
from service.heads.generate.detokenizer import Detokenizer
from service.heads.generate.pieces import TokenPieces
from service.heads.registry import load_models
from service.settings import Settings
from tests.model.training.text_samples import text_config, text_trainer
from tests.service.conftest import Running, running, wait_until

NUM_CLIENTS = 16
PROMPTS = ["a b", "c a b c", "b", "über a", "c c c a b a"]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """Random weights, large enough that its outputs depend on all that it reads."""
    torch.manual_seed(3)
    tokenizer = train(["a b c"], 280)
    config = ModelConfig(
        "decoder",
        vocab_size=tokenizer.vocab_size,
        d_model=32,
        d_ff=64,
        num_heads=4,
        num_encoder_layers=0,
        num_decoder_layers=2,
        max_seq_len=64,
        positions="learned",
    )
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(8.0 if name == "embedding.position" else 1.7)
            elif name == "decoder_norm.weight":
                parameter.normal_(std=1.5)
        model.final_bias.normal_()
    return Checkpoint(model.eval(), tokenizer, {"task": "generate"})


@pytest.fixture(scope="module")
def served(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(checkpoint, tmp_path_factory.mktemp("bundles")) as server:
        yield server


def serving(checkpoint: Checkpoint, folder: Path) -> Any:
    export_bundle(checkpoint, folder / "tiny", ExportOptions(precisions=("fp32",)))
    settings = Settings(bundles=folder, precision="fp32")
    return running(lambda _: load_models(settings, lambda _: NullObserver()).models)


def text_after(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    detokenizer = Detokenizer(TokenPieces(tokenizer), prompt)
    return "".join(map(detokenizer.push, ids)) + detokenizer.flush()


def expected(checkpoint: Checkpoint, prompt: str, max_new_tokens: int) -> str:
    """What the reference decoder writes, greedily."""
    ids = checkpoint.tokenizer.encode(prompt)
    return text_after(checkpoint.tokenizer, ids, reference.greedy(checkpoint.model, None, max_new_tokens, ids))


def generate(client: httpx.Client, prompt: str, **parameters: Any) -> Any:
    response = client.post("/generate", json={"inputs": prompt, "parameters": parameters})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_clients_read_what_the_reference_writes(served: Running, checkpoint: Checkpoint) -> None:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    hub = InferenceClient(model=f"{served.url}/generate")
    for prompt in PROMPTS:
        wanted = expected(checkpoint, prompt, 20)
        whole = client.completions.create(model="tiny", prompt=prompt, max_tokens=20, temperature=0)
        chunks = client.completions.create(model="tiny", prompt=prompt, max_tokens=20, temperature=0, stream=True)
        assert whole.choices[0].text == wanted
        assert "".join(chunk.choices[0].text for chunk in chunks) == wanted
        assert hub.text_generation(prompt, max_new_tokens=20) == wanted
        events = list(hub.text_generation(prompt, max_new_tokens=20, stream=True, details=True))
        assert events[-1].generated_text == wanted
        assert "".join(event.token.text for event in events if not event.token.special) == wanted


def test_log_probabilities_are_the_references(served: Running, checkpoint: Checkpoint) -> None:
    fields = {"prompt": "c a b c", "max_tokens": 5, "temperature": 0, "logprobs": 3, "echo": True}
    logprobs = served.client.post("/v1/completions", json=fields).json()["choices"][0]["logprobs"]
    prompt = checkpoint.tokenizer.encode("c a b c")
    ids = prompt + reference.greedy(checkpoint.model, None, 5, prompt)
    wanted = [reference.next_log_probs(checkpoint.model, None, ids[:place]) for place in range(1, len(ids))]
    count = len(ids)
    assert logprobs["token_logprobs"][0] is None
    found = logprobs["token_logprobs"][1:count]
    np.testing.assert_allclose(found, [scores[ids[place + 1]] for place, scores in enumerate(wanted)], atol=1e-4)
    for top, scores in zip(logprobs["top_logprobs"][1:count], wanted, strict=True):
        np.testing.assert_allclose(sorted(top.values())[-3:], sorted(scores)[-3:], atol=1e-4)


def test_beam_search_is_the_references(served: Running, checkpoint: Checkpoint) -> None:
    prompt = checkpoint.tokenizer.encode("c a b c")
    best = reference.beam(checkpoint.model, None, 3, 12, prompt=prompt)[0].token_ids
    found = generate(served.client, "c a b c", beam_size=3, max_new_tokens=12)["generated_text"]
    assert found == text_after(checkpoint.tokenizer, prompt, best)


def test_a_seed_gives_the_same_text_whatever_else_is_in_the_batch(served: Running) -> None:
    def draw(client: httpx.Client, number: int) -> str:
        prompt = PROMPTS[number % len(PROMPTS)]
        return str(generate(client, prompt, max_new_tokens=5 + number, seed=number, temperature=1.5)["generated_text"])

    alone = [draw(served.client, number) for number in range(NUM_CLIENTS)]
    assert len(set(alone)) > NUM_CLIENTS / 2
    with httpx.Client(base_url=served.url, timeout=60) as client, ThreadPoolExecutor(NUM_CLIENTS) as pool:
        order = random.Random(0).sample(range(NUM_CLIENTS), NUM_CLIENTS)
        together = dict(zip(order, pool.map(lambda number: draw(client, number), order), strict=True))
    assert [together[number] for number in range(NUM_CLIENTS)] == alone


def test_a_stop_sequence_and_a_client_that_leaves_free_their_rows(served: Running, checkpoint: Checkpoint) -> None:
    text = expected(checkpoint, "a b", 20)
    stop = text[3:5]
    assert (
        generate(served.client, "a b", max_new_tokens=20, stop=[stop])["generated_text"] == text[: text.index(stop) + 2]
    )
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 60}}
    with served.client.stream("POST", "/generate_stream", json=body) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("data:")
    wait_until(lambda: 'polyhead_active_rows{model="tiny"} 0.0' in served.client.get("/metrics").text)
    assert served.client.get("/health?details=1").json()["models"] == {"tiny": "ok"}


def test_a_few_shot_prompt_is_understood(tmp_path: Path) -> None:
    """A model that has learned to go on with a pattern does so with pairs of words that it is shown."""
    words = ["dog", "cat", "house", "tree"]
    chance = random.Random(0)
    pairs = [chance.sample(words, 2) for _ in range(3000)]
    config = text_config(
        CausalLmConfig(),
        32,
        model={"d_model": 32, "d_ff": 64, "max_seq_len": 32, "num_decoder_layers": 2},
        optimizer={"learning_rate": 5e-3, "schedule": "constant", "warmup_steps": 10},
        average_decay=0.9,
        max_batch_tokens=512,
        max_steps=180,
    )
    documents = [f"{first} {second} {first} {second}" for first, second in pairs]
    text_trainer(config, tmp_path, train(words, 320), documents).run(Progress())
    checkpoint = load_checkpoint(tmp_path / "final")
    with serving(checkpoint, tmp_path / "bundles") as served:
        for first, second in (("tree", "cat"), ("cat", "tree"), ("dog", "house")):
            # Its texts follow one another, so that each begins after an end.
            ids = [checkpoint.config.eos_id, *checkpoint.tokenizer.encode(f"{first} {second} {first}")]
            body = {"prompt": ids, "temperature": 0}
            choice = served.client.post("/v1/completions", json=body).json()["choices"][0]
            assert (choice["text"], choice["finish_reason"]) == (f" {second}", "stop")
