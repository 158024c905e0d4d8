"""The version of this distribution."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """As installed; "unknown" when the service runs from a folder that was never installed."""
    try:
        return metadata.version("polyhead")
    except metadata.PackageNotFoundError:
        return "unknown"
