"""What HTTP keeps of the engines' speed: our server in its own process, the clients in this one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bench.decoding import Threads
from bench.embed_load import Ask, Connect, Load, http_client, run_load
from bench.gpu.models import PreparedModel
from bench.gpu.ours import Embedder
from bench.gpu.run import Run
from bench.http import measure_http, serving
from bench.models import num_special_tokens, word
from model.embedding import input_ids
from service.models.choices import PRECISIONS

_THREADS = Threads(1, 1)
_TEXTS_PER_REQUEST = (1, 32)
_WARM_SHARE = 0.25


def measure_http_share(run: Run) -> None:
    """The first model of each task that has one, in the first precision that the server runs on the device."""
    served = PRECISIONS["cuda" if run.device == "cuda" else "cpu"]
    precision = next((name for name in run.precisions if name in served), None)
    if precision is None:
        run.record.leave_out(f"HTTP in {', '.join(run.precisions)}", f"the server runs {', '.join(served)} here")
        return
    for model in run.chosen(run.scale.translate)[:1]:
        if run.record.is_late:
            run.record.leave_out(f"{model.name} over HTTP", "no time was left")
        else:
            _measure_translate(run, model, precision)
    for model in run.chosen(run.scale.embed)[:1]:
        if run.record.is_late:
            run.record.leave_out(f"{model.name} over HTTP", "no time was left")
        else:
            _measure_embed(run, model, precision)


def _texts(run: Run, model: PreparedModel, num_words: int) -> list[str]:
    """Texts of made-up words, each of which is one token to the model's tokenizer."""
    first = num_special_tokens()
    rows = model.random_ids(run.scale.num_http_texts, num_words + 2)[:, 1:-1]
    return [" ".join(word(max(first, int(number))) for number in row) for row in rows]


def _measure_translate(run: Run, model: PreparedModel, precision: str) -> None:
    scale = run.scale
    texts = _texts(run, model, scale.source_tokens - 2)
    for result in measure_http(
        model.bundle, precision, _THREADS, texts, scale.target_tokens, scale.num_clients, run.device
    ):
        run.record.add(
            {
                "task": "translate",
                "precision": precision,
                "clients": result.num_clients,
                "texts_per_request": result.texts_per_request,
                "engine_texts_per_second": result.engine_sentences_per_second,
                "http_texts_per_second": result.http_sentences_per_second,
                "kept": result.kept,
            }
        )


def _measure_embed(run: Run, model: PreparedModel, precision: str) -> None:
    scale = run.scale
    texts = _texts(run, model, min(scale.text_tokens, scale.source_tokens))
    embedder = Embedder(model.bundle, precision, run.device)
    try:
        with serving(model.bundle, precision, _THREADS, run.device) as url:
            server = http_client(url, "/embed", lambda part: {"inputs": list(part)})
            for texts_per_request in _TEXTS_PER_REQUEST:
                load = Load(scale.num_clients, min(texts_per_request, len(texts)))
                speeds = [
                    _speed(load, connect, texts, scale.http_seconds) for connect in (_engine(embedder, model), server)
                ]
                run.record.add(
                    {
                        "task": "embed",
                        "precision": precision,
                        "clients": load.num_clients,
                        "texts_per_request": load.texts_per_request,
                        "engine_texts_per_second": speeds[0],
                        "http_texts_per_second": speeds[1],
                        "kept": speeds[1] / speeds[0],
                    }
                )
    finally:
        embedder.close()


def _speed(load: Load, connect: Connect, texts: Sequence[str], seconds: float) -> float:
    asyncio.run(run_load(load, connect, texts, _WARM_SHARE * seconds))
    return asyncio.run(run_load(load, connect, texts, seconds)).texts_per_second


def _engine(embedder: Embedder, model: PreparedModel) -> Connect:
    """Clients that ask the engine in this process, with texts that were tokenized before."""
    tokenizer, limit = model.checkpoint.tokenizer, model.config.max_seq_len
    known: dict[str, list[int]] = {}

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask]:
        async def ask(texts: Sequence[str]) -> None:
            fresh = [text for text in texts if text not in known]
            known.update(zip(fresh, input_ids(tokenizer, fresh, limit), strict=True) if fresh else ())
            await embedder.run([known[text] for text in texts])

        yield ask

    return connect
