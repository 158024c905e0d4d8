"""From training to HTTP: what comes out of the server is what the model has learned, and what the oracle finds."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import deep_translator
import libretranslatepy
import pytest

from model import reference
from model.tokenizer import EOS, language_tag
from tests.end_to_end.conftest import Server, Workshop, number_words, serving

NUM_CLIENTS = 64
MAX_NEW_TOKENS = 24


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "en")])
def test_what_was_learned_is_served(server: Server, source: str, target: str, beam_size: int) -> None:
    pairs = number_words(seed=2, count=12)
    column = int(source == "de")
    texts = [pair[column] for pair in pairs]
    answer = server.translate(texts, source, target, beam_size=beam_size)
    assert answer.json() == {"translatedText": [pair[1 - column] for pair in pairs]}


def oracle_texts(workshop: Workshop, text: str, beam_size: int, length_penalty: float, count: int) -> list[str]:
    checkpoint = workshop.checkpoint
    tokenizer = checkpoint.tokenizer
    ids = [tokenizer.token_id(language_tag("de")), *tokenizer.encode(text), tokenizer.token_id(EOS)]
    found = reference.beam(checkpoint.model, ids, beam_size, MAX_NEW_TOKENS, length_penalty, count)
    return list(dict.fromkeys(tokenizer.decode(hypothesis.token_ids).strip() for hypothesis in found))


def test_64_clients_at_once_get_what_the_oracle_finds(server: Server, workshop: Workshop) -> None:
    """Greedy and beam search mixed; up to seven words, where the model is less sure than in training."""
    chance = random.Random(4)
    texts = [pair[0] for pair in number_words(seed=3, count=NUM_CLIENTS, longest=7)]
    beams = [chance.choice([1, 1, 1, 2, 4, 8]) for _ in texts]
    penalties = [chance.choice([0.0, 0.6, 1.0]) for _ in texts]
    counts = [chance.randint(1, min(beam_size, 3)) for beam_size in beams]
    start = threading.Barrier(NUM_CLIENTS)

    def ask(text: str, beam_size: int, length_penalty: float, count: int) -> list[str]:
        start.wait()
        answer = server.translate(
            text,
            beam_size=beam_size,
            length_penalty=length_penalty,
            alternatives=count - 1,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        assert answer.status_code == 200, answer.text
        return [answer.json()["translatedText"], *answer.json().get("alternatives", [])]

    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        found = list(clients.map(ask, texts, beams, penalties, counts))
    wanted = [oracle_texts(workshop, *request) for request in zip(texts, beams, penalties, counts, strict=True)]
    assert found == wanted
    assert server.metric("polyhead_batch_size_sum{") > server.metric("polyhead_batch_size_count{")  # they ran together


def test_a_text_that_is_longer_than_the_model_reads_is_cut(server: Server) -> None:
    answer = server.translate(" ".join(["one two three"] * 60))
    assert answer.status_code == 200
    assert len(answer.json()["translatedText"].split()) > 90


def test_clients_that_people_have(server: Server) -> None:
    assert libretranslatepy.LibreTranslateAPI(server.url).translate("two three", "en", "de") == "zwei drei"
    translator = deep_translator.LibreTranslator(source="de", target="en", custom_url=f"{server.url}/", api_key="none")
    assert translator.translate("sieben acht") == "seven eight"


def test_int8_is_served_where_nothing_else_is_asked_for(workshop: Workshop) -> None:
    pairs = number_words(seed=5, count=16)
    with serving(workshop.bundles) as server:
        assert server.client.get("/info").json()["model_dtype"] == "int8"
        assert server.client.get("/health").status_code == 200
        answer = server.translate([source for source, _ in pairs])
    assert answer.json() == {"translatedText": [target for _, target in pairs]}
