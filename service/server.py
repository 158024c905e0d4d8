"""Runs the application under uvicorn until a signal ends it, and answers what was accepted before."""

from __future__ import annotations

import gc
import signal
import sys

import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.http.access import Access
from service.http.connections import ConnectionGuard, ConnectionLimits, allowed_connections
from service.models.registry import ModelRegistry
from service.operations.metrics import Metrics
from service.settings import Settings


def make_config(app: FastAPI, settings: Settings, metrics: Metrics) -> uvicorn.Config:
    """How uvicorn serves `app`: within our limits for connections, and with our log line for each request."""
    limits = ConnectionLimits(allowed_connections(settings.max_connections), settings.header_timeout_seconds)
    guard = ConnectionGuard(limits, metrics)
    metrics.watch_connections(lambda: guard.num_open)
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=guard.protocol,  # type: ignore[arg-type]  # called as the class is that uvicorn asks for
        ws="none",  # its line of a refused WebSocket would have the query string, and keys in that
        log_config=None,
        log_level=settings.log_level,
        access_log=False,  # our own line has more
        server_header=False,
        forwarded_allow_ips=settings.forwarded_allow_ips,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=max(1, round(settings.drain_timeout_seconds)),
        callback_notify=guard.sweep,
        timeout_notify=0,  # each time that uvicorn looks, which is once a second
    )


def serve(settings: Settings, registry: ModelRegistry, metrics: Metrics, access: Access) -> int:
    """Serve `registry` until SIGTERM, SIGHUP or Ctrl-C.

    The exit code: 0 after such an end, 1 when the server failed.
    """
    # uvicorn drains, restores this handler and raises the signal again, which by default would end in status 143.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # A terminal that is closed ends the server as SIGTERM does, unless nohup has said that it shall not.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    app = create_app(settings, load_models=lambda *_: registry, metrics=metrics, access=access)
    server = uvicorn.Server(make_config(app, settings, metrics))
    # What is loaded now lives until the end, so the garbage collector need not traverse it.
    gc.collect()
    gc.freeze()
    try:
        server.run()
    except KeyboardInterrupt:  # Ctrl-C, on which the server has already acted
        return 0
    except SystemExit as end:  # the server could not listen (its log says why), or our handler after it had drained
        return 0 if end.code in {0, None} else 1
    return 0 if server.started else 1
