"""Engines that encode: embeddings and attention maps."""
