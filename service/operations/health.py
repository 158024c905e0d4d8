"""Health of the models, checked by running a minimal request on each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from starlette.responses import Response

from service.engine.core.errors import DeadlineError, EngineError, OverloadedError
from service.errors import UnhealthyError
from service.http.context import Context
from service.http.replies import json_response, to_json
from service.models.base import LoadedModel
from service.models.registry import ModelRegistry

logger = logging.getLogger(__name__)

_OK, _BUSY = "ok", "busy"
_REUSE_SECONDS = 1.0


class HealthCheck:
    """Runs the smallest request through every model.

    One check runs at a time and its outcome serves for a second, so that anybody may ask, and ask often.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._running: asyncio.Task[dict[str, str]] | None = None
        self._finished = 0.0

    async def check(self, registry: ModelRegistry) -> dict[str, str]:
        """The state of each model by name, "ok" or "busy"; UnhealthyError when one is neither."""
        if self._running is None or (self._running.done() and time.monotonic() - self._finished > _REUSE_SECONDS):
            self._running = asyncio.create_task(self._check_all(registry.models))
        # Shielded: several clients wait for one check, and a disconnect must not cancel it for the others.
        models = await asyncio.shield(self._running)
        if set(models.values()) - {_OK, _BUSY}:
            raise UnhealthyError("unhealthy", models)
        return models

    async def close(self) -> None:
        """Cancel a check that no client waits for."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _check_all(self, models: Sequence[LoadedModel]) -> dict[str, str]:
        states = await asyncio.gather(*(self._state(model) for model in models))
        self._finished = time.monotonic()
        return {model.name: state for model, state in zip(models, states, strict=True)}

    async def _state(self, model: LoadedModel) -> str:
        """A model whose queue is full is healthy as long as its engine makes steps."""
        steps_before = model.engine.stats().steps
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await model.probe(started + self._timeout_seconds)
        except OverloadedError:
            # The queue is full, so a live engine makes steps within the timeout of the check.
            await asyncio.sleep(self._timeout_seconds / 10)
            return self._busy_or(model, steps_before, "its queue is full and its engine makes no progress")
        except (DeadlineError, TimeoutError):
            return self._busy_or(model, steps_before, f"gave no answer within {self._timeout_seconds:g} seconds")
        except EngineError as error:
            return str(error)
        except Exception:
            logger.exception("the health check of model %s failed", model.name)
            return "failed; the log says how"
        return _OK

    @staticmethod
    def _busy_or(model: LoadedModel, steps_before: int, fault: str) -> str:
        stats = model.engine.stats()
        return _BUSY if stats.is_alive and stats.steps > steps_before else fault


async def health_response(context: Context, *, with_details: bool) -> Response:
    """200 when every model answers; what each does is left out unless it is asked for, since clients compare the body.

    Raises UnhealthyError when one does not answer.
    """
    models = await context.of(HealthCheck).check(context.registry)
    return json_response(to_json({"status": _OK} | ({"models": models} if with_details else {})))
