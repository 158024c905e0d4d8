"""Logging: one JSON object a line, on standard error."""

from __future__ import annotations

import logging
import re
import sys

from pythonjsonlogger.orjson import OrjsonFormatter

_KEY = re.compile(r"(api_key=)[^&\s\"'\\]+")


class _KeylessFormatter(OrjsonFormatter):
    """Takes keys out of URLs, wherever a library may have put one into a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return _KEY.sub(r"\1***", line) if "api_key=" in line else line


def configure_logging(level: str) -> None:
    """Send every logger's lines, the server's among them, through one JSON formatter. Called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _KeylessFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
