"""The one error of this package."""

from __future__ import annotations

from model.checkpoint import CheckpointError


class ModelImportError(CheckpointError):
    """A model that cannot be imported; the message lists everything at fault and what to do."""
