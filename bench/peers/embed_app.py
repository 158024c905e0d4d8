"""`python -m bench.peers.embed_app FOLDER PORT THREADS`: sentence-transformers behind FastAPI, as people write it."""

from __future__ import annotations

import sys

import sentence_transformers
import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class EmbedRequest(BaseModel):
    """The body of POST /embed."""

    inputs: str | list[str]


def create_app(folder: str) -> FastAPI:
    """One route that embeds what it is given, in the thread that FastAPI gives it."""
    app, model = FastAPI(), sentence_transformers.SentenceTransformer(folder, device="cpu")

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.post("/embed")
    def embed(request: EmbedRequest) -> list[list[float]]:
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        vectors: list[list[float]] = model.encode(texts, normalize_embeddings=True).tolist()
        return vectors

    return app


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    uvicorn.run(create_app(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
