"""What /openapi.json says and what is answered agree, by requests that schemathesis makes of the document."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.models.registry import ModelRegistry
from service.settings import Settings
from tests.service.heads.attend.conftest import RunningAttention, running_attention

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "15"))
"""Of each operation and mode; more of them, by the environment, search longer."""

APP = create_app(Settings(), load_models=lambda *_: ModelRegistry([]))
DOCUMENT = schemathesis.openapi.from_dict(APP.openapi())
OPERATIONS = {
    operation.label: operation
    for operation in (found.ok() for found in DOCUMENT.get_all_operations() if isinstance(found, Ok))
}
MODES = [
    *((label, GenerationMode.POSITIVE) for label in sorted(OPERATIONS)),
    *((label, GenerationMode.NEGATIVE) for label in sorted(OPERATIONS) if OPERATIONS[label].body),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningAttention]:
    with running_attention() as served:
        yield served


def test_the_document_has_routes_of_every_head() -> None:
    assert {"POST /translate", "POST /embed", "POST /v1/completions", "POST /attention", "GET /health"} <= set(
        OPERATIONS
    )


@pytest.mark.parametrize(("label", "mode"), MODES, ids=str)
def test_answers_are_as_the_document_says(server: RunningAttention, label: str, mode: GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=str(server.client.base_url), checks=CHECKS, timeout=30)

    ask()
