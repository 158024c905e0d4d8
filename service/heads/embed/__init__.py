"""From texts to vectors: everything of /embed and /v1/embeddings above the engine."""
