"""`python -m service`: serve until SIGTERM or Ctrl-C, and answer what was accepted before the end.

Exit codes: 0 after a requested end, 2 when the settings or a bundle do not let the server start, 1 when it failed.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Sequence

import uvicorn

from service.app import create_app
from service.errors import StartupError
from service.loading import load_models
from service.logs import configure_logging
from service.metrics import Metrics
from service.models import ModelRegistry
from service.settings import Settings, load_settings, unknown_variables

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; the exit code when it ends."""
    # Also before the server's own handlers are in place, and when it raises the signal again after a graceful end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    metrics = Metrics()
    try:
        settings = load_settings(arguments)
        configure_logging(settings.log_level)
        for warning in unknown_variables():
            logger.warning(warning)
        # Loaded here and not in the lifespan, so that a fault is one line for people instead of a traceback.
        registry = load_models(settings, metrics.observer)
    except StartupError as error:
        for line in str(error).splitlines():
            print(f"polyhead: {line}", file=sys.stderr)
        return 2
    return serve(settings, registry, metrics)


def serve(settings: Settings, registry: ModelRegistry, metrics: Metrics) -> int:
    """Serve `registry` until a signal ends it."""
    app = create_app(settings, load_models=lambda *_: registry, metrics=metrics)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            log_level=settings.log_level,
            access_log=False,  # our own line has more
            server_header=False,
            forwarded_allow_ips=settings.forwarded_allow_ips,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=max(1, round(settings.drain_timeout_seconds)),
        )
    )
    # What is loaded now lives until the end: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    try:
        server.run()
    except KeyboardInterrupt:  # Ctrl-C, which the server has already acted upon
        return 0
    except SystemExit as end:
        # The server's own end before it listened (a taken port: its log says so), or our handler's after it drained.
        return 0 if end.code in {0, None} else 1
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
