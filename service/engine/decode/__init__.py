"""Continuous batching for decoder-only models: prompts in, streams of tokens out."""
