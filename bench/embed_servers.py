"""The servers that are compared over HTTP: ours, a hand-written app, and infinity; and our engine without HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.decoding import Threads
from bench.embed_load import Ask, Connect, http_client
from bench.embed_models import PreparedEncoder, onnx_folder
from bench.embedding import EngineEncoder
from bench.http import serving
from bench.servers import free_port, running
from service.engine.encode.embedding import EmbeddingRequest

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Server:
    """One side under load; `has_engine` where our engine without HTTP is what it is to be measured by."""

    name: str
    precision: str
    connect: Connect
    has_engine: bool = False


def engine_client(encoder: EngineEncoder) -> Connect:
    """Clients that ask our engine in this process, with texts that are tokenized beforehand."""
    known: dict[str, EmbeddingRequest] = {}

    @asynccontextmanager
    async def connect() -> AsyncIterator[Ask]:
        async def ask(texts: Sequence[str]) -> None:
            fresh = [text for text in texts if text not in known]
            known.update(zip(fresh, encoder.requests(fresh), strict=True) if fresh else ())
            await encoder.engine.run([known[text] for text in texts])

        yield ask

    return connect


@contextmanager
def our_server(prepared: PreparedEncoder, precision: str, num_threads: int) -> Iterator[Server]:
    """The service as `python -m service` runs it."""
    with serving(prepared.bundle, precision, Threads(num_threads, 1)) as url:
        connect = http_client(url, "/embed", lambda texts: {"inputs": list(texts)})
        yield Server("polyhead", precision, connect, has_engine=True)


@contextmanager
def hand_written_server(prepared: PreparedEncoder, num_threads: int) -> Iterator[Server]:
    """FastAPI with sentence-transformers in it."""
    port = free_port()
    command = [sys.executable, "-m", "bench.peers.embed_app", str(prepared.folder), str(port), str(num_threads)]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, _ROOT):
        connect = http_client(url, "/embed", lambda texts: {"inputs": list(texts)})
        yield Server("FastAPI + sentence-transformers", "fp32", connect)


@contextmanager
def infinity_server(prepared: PreparedEncoder, environment: Path) -> Iterator[Server]:
    """The server of infinity, with its optimum engine, from the virtual environment that it is installed in."""
    folder, port = onnx_folder(prepared, environment), free_port()
    # It looks for the ONNX file from where it stands, and Optimum from the model's folder: here both are the same.
    command = [str(environment.resolve() / "bin" / "infinity_emb"), "v2", "--model-id", ".", "--engine", "optimum"]
    command += ["--device", "cpu", "--served-model-name", "model", "--no-model-warmup", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--log-level", "error"]
    url = f"http://127.0.0.1:{port}"
    with running(command, url, folder):
        connect = http_client(url, "/embeddings", lambda texts: {"model": "model", "input": list(texts)})
        yield Server("infinity (optimum)", "fp32", connect)
