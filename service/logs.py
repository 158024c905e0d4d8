"""Logging: one JSON object a line, on standard error."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.orjson import OrjsonFormatter


def configure_logging(level: str) -> None:
    """Send every logger's lines, the server's among them, through one JSON formatter. Called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        OrjsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
