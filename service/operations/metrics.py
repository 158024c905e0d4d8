"""Prometheus metrics, in one registry for each app, so that two apps in one process do not mix."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.engine.core.types import EngineStats
from service.http.usage import Account

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """Everything that /metrics shows. The label `route` is a route's template, so a scan of paths makes no series."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "polyhead_requests", "Answered requests.", ("method", "route", "status"), registry=self.registry
        )
        self._closed = Counter(
            "polyhead_closed_connections",
            "Connections that were refused (too_many, large_headers), or closed because their client was too slow "
            "(slow_headers, unread).",
            ("reason",),
            registry=self.registry,
        )
        self._by_request: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._latency = Histogram(
            "polyhead_request_seconds",
            "Time from a request's arrival to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._queue = Histogram(
            "polyhead_queue_seconds",
            "Time that a sentence waited for its model.",
            ("model",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch = Histogram(
            "polyhead_batch_size",
            "Rows of a batch, by phase.",
            ("model", "phase"),
            buckets=_ROWS,
            registry=self.registry,
        )
        self._tokens = Counter(
            "polyhead_generated_tokens", "Tokens generated, all hypotheses.", ("model",), registry=self.registry
        )
        self._prompt = Counter(
            "polyhead_prompt_tokens", "Tokens of prompts to continue.", ("model",), registry=self.registry
        )
        self._reused = Counter(
            "polyhead_reused_prompt_tokens",
            "Tokens of prompts that were not computed, because another text began with them.",
            ("model",),
            registry=self.registry,
        )
        self._padding = Counter(
            "polyhead_padding_tokens", "Tokens computed only as padding.", ("model", "phase"), registry=self.registry
        )
        self._computed = Counter(
            "polyhead_computed_tokens", "Tokens computed, padding included.", ("model", "phase"), registry=self.registry
        )

        self._device_steps = Counter(
            "polyhead_device_steps",
            "Decoder steps on a device whose CUDA graphs are on: captured just now, replayed, or ordinary.",
            ("model", "run"),
            registry=self.registry,
        )

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Call `count` at each scrape for the connections that are open."""
        Gauge("polyhead_open_connections", "Connections that are open.", registry=self.registry).set_function(count)

    def on_connection_closed(self, reason: str) -> None:
        """Count a connection that was refused or closed for the `reason`."""
        self._closed.labels(reason).inc()

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method if method in _METHODS else "OTHER", route, status)
        series = self._by_request.get(key)
        if series is None:  # finding them by their labels takes longer than counting
            series = self._requests.labels(*map(str, key)), self._latency.labels(route)
            self._by_request[key] = series
        requests, latency = series
        requests.inc()
        latency.observe(seconds)

    def observer(self, model: str) -> MetricsObserver:
        """The observer for the engine of `model`."""
        return MetricsObserver(
            queue=self._queue.labels(model),
            generated=self._tokens.labels(model),
            prompt=self._prompt.labels(model),
            reused=self._reused.labels(model),
            device_steps=lambda run: self._device_steps.labels(model, run),
            phases={
                phase: _PhaseSeries(
                    self._batch.labels(model, phase),
                    self._padding.labels(model, phase),
                    self._computed.labels(model, phase),
                )
                for phase in ("encode", "decode")
            },
        )

    def watch_engines(self, stats: Callable[[], Mapping[str, EngineStats]]) -> None:
        """Read `stats` by model name at each scrape, for what is of the moment."""
        self.registry.register(_EngineCollector(stats))

    def watch_keys(self, accounts: Callable[[], Iterable[Account]]) -> None:
        """Read `accounts` at each scrape for what the API keys have used."""
        self.registry.register(_KeyCollector(accounts))

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


class _PhaseSeries(NamedTuple):
    batch_size: Histogram
    padding: Counter
    computed: Counter

    def add(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        self.batch_size.observe(num_rows)
        self.padding.inc(num_padded_tokens)
        self.computed.inc(num_tokens + num_padded_tokens)


class MetricsObserver:
    """Counts what one engine does. Called on the engine's thread, so the labels are resolved beforehand."""

    def __init__(
        self,
        *,
        queue: Histogram,
        generated: Counter,
        prompt: Counter,
        reused: Counter,
        device_steps: Callable[[str], Counter],
        phases: Mapping[str, _PhaseSeries],
    ) -> None:
        self._queue = queue
        self._generated = generated
        self._prompt = prompt
        self._reused = reused
        self._device_steps = functools.cache(device_steps)
        self._encode = phases["encode"]
        self._decode = phases["decode"]

    def on_encode(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        self._encode.add(num_rows, num_tokens, num_padded_tokens)

    def on_step(self, num_rows: int, num_new_tokens: int, num_padded_tokens: int) -> None:
        self._decode.add(num_rows, num_new_tokens, num_padded_tokens)
        self._generated.inc(num_new_tokens)

    def on_prompt(self, num_tokens: int, num_reused_tokens: int, num_new_tokens: int) -> None:
        self._prompt.inc(num_tokens)
        self._reused.inc(num_reused_tokens)
        self._generated.inc(num_new_tokens)

    def on_queue(self, seconds: float) -> None:
        self._queue.observe(seconds)

    def on_rows(self, active_rows: int, max_rows: int) -> None:
        """Nothing: the rows in use are read from the engine's stats at each scrape."""

    def on_device_step(self, run: str) -> None:
        self._device_steps(run).inc()


class _EngineCollector(Collector):
    """Gauges that are read from the engines when they are rendered."""

    _GAUGES = (
        ("waiting_requests", "Sentences that wait for their model."),
        ("waiting_tokens", "Tokens that wait for their model."),
        ("active_rows", "Cache rows in use."),
        ("max_rows", "Cache rows there are."),
        ("padding_share", "Share of the computed tokens that was padding, 0 to 1, since the start."),
    )

    def __init__(self, stats: Callable[[], Mapping[str, EngineStats]]) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance, so that registering reads no engine."""
        return ()

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for name, documentation in self._GAUGES:
            gauge = GaugeMetricFamily(f"polyhead_{name}", documentation, labels=("model",))
            for model, snapshot in stats.items():
                gauge.add_metric((model,), getattr(snapshot, name))
            yield gauge
        steps = CounterMetricFamily("polyhead_steps", "Decoding steps.", labels=("model",))
        alive = GaugeMetricFamily("polyhead_model_alive", "1 while the model's loop runs.", labels=("model",))
        for model, snapshot in stats.items():
            steps.add_metric((model,), snapshot.steps)
            alive.add_metric((model,), float(snapshot.is_alive))
        yield steps
        yield alive


class _KeyCollector(Collector):
    """What each API key has used this month, by its name; `default` is everybody without a named one."""

    def __init__(self, accounts: Callable[[], Iterable[Account]]) -> None:
        self._accounts = accounts

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance, so that registering reads no account."""
        return ()

    def collect(self) -> Iterable[Metric]:
        characters = GaugeMetricFamily(
            "polyhead_key_characters", "Characters that an API key has used this month (UTC).", labels=("key",)
        )
        limits = GaugeMetricFamily(
            "polyhead_key_characters_limit", "Characters that an API key may use in a month.", labels=("key",)
        )
        requests = GaugeMetricFamily(
            "polyhead_key_requests", "Requests of an API key this month (UTC).", labels=("key",)
        )
        for account in self._accounts():
            label, used = (account.key.name,), account.used
            characters.add_metric(label, used.characters)
            requests.add_metric(label, used.requests)
            if account.key.characters_per_month is not None:
                limits.add_metric(label, account.key.characters_per_month)
        yield from (characters, limits, requests)
