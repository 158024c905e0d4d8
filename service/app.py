"""The application: settings in, FastAPI out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service.attention.attender import Attender
from service.attention.rendering import RenderPool
from service.documents import DocumentTranslator
from service.embedding import Embedder
from service.error_handlers import install_error_handlers
from service.file_store import FileStore
from service.generation.generator import TextGenerator
from service.health import HealthCheck
from service.metrics import Metrics
from service.middleware import (
    BodyLimitMiddleware,
    RequestContextMiddleware,
    SecurityHeadersMiddleware,
    UnexpectedErrorMiddleware,
)
from service.models import ModelLoader, ModelRegistry
from service.rate_limit import RateLimiter
from service.routes import (
    attention,
    chat,
    completions,
    embed,
    files,
    frontend,
    generate,
    languages,
    openai_embeddings,
    openai_models,
    operations,
    pages,
    tokens,
    translate,
)
from service.routes.plain import PlainRoutesMiddleware
from service.services import Services
from service.settings import Settings
from service.text.detect import Detector
from service.tokenization import TokenizationPool
from service.translation import Translator
from service.version import version

logger = logging.getLogger(__name__)

ROUTERS = (  # tried in this order, after the plain ones among them
    embed.router,
    openai_embeddings.router,
    generate.router,
    completions.router,
    chat.router,
    translate.router,
    languages.router,
    files.router,
    frontend.router,
    tokens.router,
    openai_models.router,
    attention.router,
    operations.router,
    pages.router,
)

_MULTIPART_OVERHEAD_BYTES = 16 * 1024  # boundaries, headers and the small fields around an uploaded file


def create_app(settings: Settings, load_models: ModelLoader, metrics: Metrics | None = None) -> FastAPI:
    """The application. Its lifespan calls `load_models`, starts the engines, and drains them at the end."""
    metrics = metrics or Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry = await asyncio.to_thread(load_models, settings, metrics.observer)
        engines = {name: engine for model in registry.models for name, engine in model.engines.items()}
        metrics.watch_engines(lambda: {name: engine.stats() for name, engine in engines.items()})
        services = make_services(settings, registry, metrics)
        app.state.services = services
        try:
            for engine in engines.values():
                engine.start()
            yield
        finally:
            await _stop(services)

    app = FastAPI(
        title="Polyhead",
        version=version(),
        description="Translation with LibreTranslate's protocol, embeddings with TEI's, text with TGI's, and OpenAI's.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        middleware=_middleware(settings, metrics),
        routes=pages.asset_mounts(),
    )
    for router in ROUTERS:
        app.include_router(router)
    install_error_handlers(app)
    return app


def make_services(settings: Settings, registry: ModelRegistry, metrics: Metrics) -> Services:
    """What the routes need, wired together."""
    translator = Translator(registry, settings, Detector([language.code for language in registry.languages]))
    tokenization = TokenizationPool(settings.tokenization_workers)
    rendering = RenderPool(settings.max_waiting_answers)
    return Services(
        settings=settings,
        metrics=metrics,
        registry=registry,
        translator=translator,
        documents=DocumentTranslator(translator, settings.max_concurrent_files),
        embedder=Embedder(registry, tokenization),
        generator=TextGenerator(registry, tokenization),
        attender=Attender(registry, settings, translator, tokenization, rendering),
        rendering=rendering,
        tokenization=tokenization,
        files=FileStore(max_bytes=settings.max_stored_file_bytes, lifetime_seconds=settings.file_lifetime_seconds),
        limiter=RateLimiter(settings.requests_per_minute),
        health=HealthCheck(registry, settings.health_timeout_seconds),
    )


def _middleware(settings: Settings, metrics: Metrics) -> list[Middleware]:
    """Outermost first."""
    upload_bytes = settings.max_file_bytes + _MULTIPART_OVERHEAD_BYTES
    stack = [Middleware(RequestContextMiddleware, metrics=metrics), Middleware(SecurityHeadersMiddleware)]
    if settings.cors_origins:
        stack.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("Authorization", "Content-Type", "X-Request-ID"),
                expose_headers=("X-Request-ID", "Retry-After"),
            )
        )
    stack.append(
        Middleware(
            BodyLimitMiddleware,
            max_body_bytes=settings.max_body_bytes,
            max_body_bytes_by_path={"/translate_file": upload_bytes},
        )
    )
    stack.append(Middleware(UnexpectedErrorMiddleware))
    stack.append(Middleware(PlainRoutesMiddleware, routers=ROUTERS))
    return stack


async def _stop(services: Services) -> None:
    """Let the engines finish what they have, then free everything."""
    await services.health.close()
    engines = [engine for model in services.registry.models for engine in model.engines.values()]
    timeout_seconds = services.settings.drain_timeout_seconds
    try:
        drained = await asyncio.gather(*(asyncio.to_thread(engine.drain, timeout_seconds) for engine in engines))
        if not all(drained):
            logger.warning("not everything was answered within %g seconds", timeout_seconds)
    finally:
        for engine in engines:
            engine.close()
        await asyncio.to_thread(services.documents.close)
        await asyncio.to_thread(services.tokenization.close)
        await asyncio.to_thread(services.rendering.close)
        services.files.close()
    logger.info("all models have stopped")
