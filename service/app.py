"""The application: settings in, FastAPI out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service.heads.registry import HEADS
from service.http.access import Access, open_access
from service.http.context import Context, current_context, install_context
from service.http.error_handlers import HUB, LIBRETRANSLATE, OPENAI, TEI, install_error_handlers
from service.http.jobs import JobStore
from service.http.middleware import (
    BodyLimitMiddleware,
    HeadMiddleware,
    RequestContextMiddleware,
    RootPathMiddleware,
    SecurityHeadersMiddleware,
    UnexpectedErrorMiddleware,
)
from service.http.plain import PlainRoutesMiddleware
from service.models.base import EngineControl
from service.models.registry import ModelLoader, ModelRegistry
from service.operations import dispatch, pages, root
from service.operations import routes as operations
from service.operations.health import HealthCheck
from service.operations.memory import MemoryTrimmer
from service.operations.metrics import Metrics
from service.settings import Settings
from service.version import version
from service.workers import INLINE_CHARACTERS, WorkerPool

logger = logging.getLogger(__name__)

ROUTERS = (  # tried in this order, after the plain routes among them
    *(router for head in HEADS for router in head.routers),
    (root.router, HUB),
    (dispatch.router, TEI),
    (dispatch.openai_router, OPENAI),
    (operations.router, LIBRETRANSLATE),
    (pages.router, LIBRETRANSLATE),
)
"""With the protocol in which the errors of each are answered."""


def create_app(
    settings: Settings, load_models: ModelLoader, metrics: Metrics | None = None, access: Access | None = None
) -> FastAPI:
    """The application. Its lifespan calls `load_models`, starts the engines, and drains them at the end."""
    root.check_root_task(settings)
    metrics = metrics or Metrics()
    access = access or open_access(settings)
    metrics.watch_keys(lambda: access.accounts)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry = await asyncio.to_thread(load_models, settings, metrics.observer)
        async with _serving(settings, registry, metrics, access) as context:
            install_context(app, context)
            metrics.watch_engines(
                lambda: {name: engine.stats() for name, engine in _engines(current_context(app).registry).items()}
            )
            try:
                for engine in _engines(registry).values():
                    engine.start()
                yield
            finally:
                await context.of(HealthCheck).close()
                await _drain(list(_engines(current_context(app).registry).values()), settings.drain_timeout_seconds)
        logger.info("all models have stopped")

    app = FastAPI(
        title="Polyhead",
        version=version(),
        description="Translation with LibreTranslate's protocol, embeddings with TEI's, text with TGI's, and OpenAI's.",
        lifespan=lifespan,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        openapi_url=None,  # ours is written once
        docs_url=None,
        redoc_url=None,
        middleware=_middleware(settings, metrics),
        routes=pages.asset_mounts(),
    )
    for router, _ in ROUTERS:
        app.include_router(router)
    # Inside of all others. Of the routes as the app has them, with the dependencies of all that they were included in.
    app.user_middleware.append(Middleware(PlainRoutesMiddleware, routes=app.routes))
    app.user_middleware.append(Middleware(HeadMiddleware))  # further in, so that the busiest routes do not pass it
    install_error_handlers(app, ROUTERS)
    return app


@asynccontextmanager
async def _serving(
    settings: Settings, registry: ModelRegistry, metrics: Metrics, access: Access
) -> AsyncIterator[Context]:
    """What the routes need, made in the order of the heads and freed in reverse."""
    async with AsyncExitStack() as stack:
        tokenization = WorkerPool(settings.tokenization_workers, name="tokenization", inline_size=INLINE_CHARACTERS)
        stack.push_async_callback(asyncio.to_thread, tokenization.close)
        if (trimmer := MemoryTrimmer.of_process()) is not None:
            trimmer.start()
            stack.push_async_callback(trimmer.close)
        access.book.start()
        stack.push_async_callback(asyncio.to_thread, access.book.close)
        jobs = JobStore(
            max_jobs=settings.max_jobs,
            max_bytes=settings.max_job_bytes,
            lifetime_seconds=settings.job_lifetime_seconds,
        )
        context = Context(
            settings=settings,
            registry=registry,
            access=access,
            tokenization=tokenization,
            metrics=metrics,
        ).including(HealthCheck(settings.health_timeout_seconds), jobs)
        for head in HEADS:
            context = context.including(*await stack.enter_async_context(head.build(context)))
        stack.push_async_callback(jobs.close)
        yield context


def _engines(registry: ModelRegistry) -> dict[str, EngineControl]:
    return {name: engine for model in registry.models for name, engine in model.engines.items()}


async def _drain(engines: Sequence[EngineControl], timeout_seconds: float) -> None:
    """Let the engines finish what they have, then stop them."""
    try:
        drained = await asyncio.gather(*(asyncio.to_thread(engine.drain, timeout_seconds) for engine in engines))
        if not all(drained):
            logger.warning("not everything was answered within %g seconds", timeout_seconds)
    finally:
        for engine in engines:
            engine.close()


def _middleware(settings: Settings, metrics: Metrics) -> list[Middleware]:
    """Outermost first."""
    stack = [Middleware(RequestContextMiddleware, metrics=metrics), Middleware(SecurityHeadersMiddleware)]
    if settings.root_path:
        stack.insert(0, Middleware(RootPathMiddleware, root_path=settings.root_path))
    if settings.cors_origins:
        stack.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=("GET", "HEAD", "POST"),
                allow_headers=("*",),  # clients have headers of their own, such as OpenAI's x-stainless-os
                expose_headers=("X-Request-ID", "Retry-After"),
            )
        )
    stack.append(
        Middleware(
            BodyLimitMiddleware,
            max_body_bytes=settings.max_body_bytes,
            max_body_bytes_by_path={
                path: limit for head in HEADS for path, limit in head.upload_bytes(settings).items()
            },
        )
    )
    stack.append(Middleware(UnexpectedErrorMiddleware))
    return stack
