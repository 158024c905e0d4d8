"""The dashboard asks for metrics that the service has; a renamed one would leave a panel empty without an error."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.engine.core.types import EngineStats
from service.operations.metrics import Metrics

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "polyhead.json"
STATS = EngineStats(
    waiting_requests=1, waiting_tokens=9, active_rows=2, max_rows=64, steps=5, generated_tokens=10, padding_share=0.1
)


def queries(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (value for key, value in node.items() if key in ("expr", "query") and isinstance(value, str))
        yield from (found for value in node.values() for found in queries(value))
    elif isinstance(node, list):
        yield from (found for value in node for found in queries(value))


@pytest.fixture
def samples() -> dict[str, set[str]]:
    """Every sample name of a used service, with its labels."""
    metrics = Metrics()
    metrics.observe_request("POST", "/translate", 200, 0.1)
    observer = metrics.observer("en-de")
    observer.on_encode(2, 10, 2)
    observer.on_step(2, 2, 0)
    observer.on_queue(0.01)
    metrics.watch_engines(lambda: {"en-de": STATS})
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_query_names_metrics_and_labels_that_exist(samples: dict[str, set[str]]) -> None:
    expressions = list(queries(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    assert len(expressions) > 10
    for expression in expressions:
        names = re.findall(r"\bpolyhead_\w+", expression)
        assert names, f"{expression} reads no metric of ours"
        unknown = set(names) - samples.keys()
        assert not unknown, f"{expression}: no such metric: {unknown}"
        labels = set(re.findall(r"(\w+)=~?\"", expression))
        labels |= {name for group in re.findall(r"by \(([^)]*)\)", expression) for name in re.split(r",\s*", group)}
        known = set().union(*(samples[name] for name in names))
        assert labels <= known, f"{expression}: no such label: {labels - known}"


def test_every_metric_family_is_on_the_dashboard(samples: dict[str, set[str]]) -> None:
    text = " ".join(queries(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    shown_otherwise = {"polyhead_padding_share"}  # the panel takes the share of the moment, from the two counters
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in samples if not name.endswith("_created")}
    assert {family for family in families - shown_otherwise if family not in text} == set()
