"""What HTTP keeps of the engines' speed: our server in its own process, the clients in this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.gpu.models import PreparedModel
from bench.gpu.run import Run
from bench.loads import Load, Server, in_process, run_load
from bench.models import num_special_tokens, word
from bench.ours import EngineDecoder, EngineEncoder
from bench.servers import embed_body, our_server, translate_body
from bench.side import Text, Threads
from service.models.choices import PRECISIONS

_THREADS = Threads(1, 1)
_TEXTS_PER_REQUEST = (1, 32)
_WARM_SHARE = 0.25

Measure = Callable[[Run, PreparedModel, str], None]


def measure_http_share(run: Run) -> None:
    """The first model of each task that has one, in the first precision that the server runs on the device."""
    served = PRECISIONS["cuda" if run.device == "cuda" else "cpu"]
    precision = next((name for name in run.precisions if name in served), None)
    if precision is None:
        run.record.leave_out(f"HTTP in {', '.join(run.precisions)}", f"the server runs {', '.join(served)} here")
        return
    measures: list[tuple[Any, Measure]] = [(run.scale.translate, _measure_translate), (run.scale.embed, _measure_embed)]
    for models, measure in measures:
        for model in run.chosen(models)[:1]:
            if run.record.is_late:
                run.record.leave_out(f"{model.name} over HTTP", "no time was left")
            else:
                measure(run, model, precision)


def _texts(run: Run, model: PreparedModel, num_words: int) -> list[str]:
    """Texts of made-up words, each of which is one token to the model's tokenizer."""
    first = num_special_tokens()
    rows = model.random_ids(run.scale.num_http_texts, num_words + 2)[:, 1:-1]
    return [" ".join(word(max(first, int(number))) for number in row) for row in rows]


def _measure_translate(run: Run, model: PreparedModel, precision: str) -> None:
    scale = run.scale
    texts = _texts(run, model, scale.source_tokens - 2)
    known = dict(zip(texts, (Text(ids, scale.target_tokens) for ids in model.source_ids(texts)), strict=True))
    engine = EngineDecoder(model.bundle, precision, _THREADS, run.device)
    try:
        body = partial(translate_body, max_new_tokens=scale.target_tokens)
        with our_server(model.bundle, precision, _THREADS, "/translate", body, run.device) as server:
            _measure(run, "translate", in_process(engine, known=known), server, texts)
    finally:
        engine.close()


def _measure_embed(run: Run, model: PreparedModel, precision: str) -> None:
    texts = _texts(run, model, min(run.scale.text_tokens, run.scale.source_tokens))
    engine = EngineEncoder(model.bundle, precision, _THREADS, device=run.device)
    try:
        with our_server(model.bundle, precision, _THREADS, "/embed", embed_body, run.device) as server:
            _measure(run, "embed", in_process(engine), server, texts)
    finally:
        engine.close()


def _measure(run: Run, task: str, engine: Server[str], server: Server[str], texts: Sequence[str]) -> None:
    for texts_per_request in _TEXTS_PER_REQUEST:
        load = Load(run.scale.num_clients, min(texts_per_request, len(texts)))
        speeds = [_speed(load, side, texts, run.scale.http_seconds) for side in (engine, server)]
        run.record.add(
            {
                "task": task,
                "precision": server.precision,
                "clients": load.num_clients,
                "texts_per_request": load.texts_per_request,
                "engine_texts_per_second": speeds[0],
                "http_texts_per_second": speeds[1],
                "kept": speeds[1] / speeds[0],
            }
        )


def _speed(load: Load, server: Server[str], texts: Sequence[str], seconds: float) -> float:
    run_load(server.connect, texts, load, _WARM_SHARE * seconds)
    return run_load(server.connect, texts, load, seconds).texts_per_second
