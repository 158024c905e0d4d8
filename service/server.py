"""Runs the application under uvicorn until a signal ends it, and answers what was accepted before."""

from __future__ import annotations

import gc
import signal
import sys

import uvicorn

from service.app import create_app
from service.metrics import Metrics
from service.models import ModelRegistry
from service.settings import Settings


def serve(settings: Settings, registry: ModelRegistry, metrics: Metrics) -> int:
    """Serve `registry` until SIGTERM or Ctrl-C. The exit code: 0 after such an end, 1 when the server failed."""
    # uvicorn drains, restores this handler and raises the signal again, which by default would end in status 143.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
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
    except KeyboardInterrupt:  # Ctrl-C, on which the server has already acted
        return 0
    except SystemExit as end:  # the server could not listen (its log says why), or our handler after it had drained
        return 0 if end.code in {0, None} else 1
    return 0 if server.started else 1
