from __future__ import annotations

import dataclasses
import http.client
import json

import pytest
import tokenizers
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from tokenizers import Regex, pre_tokenizers

from model.tokenizer import Tokenizer
from service import errors
from service.app import ROUTERS
from service.engine.core import errors as engine_errors
from service.http.error_handlers import ANSWERS, error_response, install_error_handlers
from tests.service.conftest import Running, Serve
from tests.service.fakes import fake_model, tiny_tokenizer


def body_of(path: str, error: Exception) -> dict[str, object]:
    app = FastAPI()
    install_error_handlers(app, ROUTERS)
    body = json.loads(bytes(error_response({"path": path, "app": app}, error).body))
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("path", ["/nothing", "/translate/x", "/download_file", "/static/none.js"])
def test_an_unknown_path_is_404_in_our_shape(server: Running, path: str) -> None:
    response = server.client.get(path)
    assert (response.status_code, response.json()) == (404, {"error": "Not Found", "error_type": "not_found"})


def test_an_unknown_path_under_v1_is_404_in_openais_shape(server: Running) -> None:
    error = server.client.get("/v1/nothing").json()["error"]
    assert error == {"message": "Not Found", "type": "not_found_error", "param": None, "code": "not_found"}


def test_a_wrong_method_names_the_right_one(server: Running) -> None:
    response = server.client.get("/translate")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json() == {"error": "Method Not Allowed", "error_type": "method_not_allowed"}


def test_a_full_engine_is_429_with_retry_after(serve: Serve) -> None:
    served = serve()
    served.engine.max_waiting = 0
    response = served.translate()
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json() == {"error": "Slowdown: the queue is full", "error_type": "overloaded"}


def test_a_dead_engine_is_503(serve: Serve) -> None:
    served = serve()
    served.engine.failure = engine_errors.ModelUnavailableError("secret detail")
    response = served.translate()
    assert response.status_code == 503
    assert response.json() == {"error": "The model is not available", "error_type": "unhealthy"}


def test_an_unexpected_error_is_500_without_its_text(serve: Serve) -> None:
    served = serve()
    served.engine.failure = RuntimeError("secret detail")
    response = served.translate()
    assert response.status_code == 500
    assert response.json() == {"error": "Internal server error", "error_type": "internal"}
    assert response.headers["x-request-id"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_late_request_is_504(serve: Serve) -> None:
    served = serve(request_timeout_seconds=0.2)
    served.engine.hold()
    response = served.translate()
    assert (response.status_code, response.json()["error_type"]) == (504, "timeout")
    assert served.engine.num_running == 0


def test_a_body_declared_too_long_is_413_before_it_is_read(serve: Serve) -> None:
    served = serve(max_body_bytes=4_000, max_text_characters=1_000)
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=5)
    connection.putrequest("POST", "/translate")
    connection.putheader("Content-Length", "1000000000")
    connection.endheaders()
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status == 413
    assert body == {
        "error": "Invalid request: the request body exceeds the limit of 4000 bytes",
        "error_type": "payload_too_large",
    }


def test_a_body_that_grows_too_long_is_413(serve: Serve) -> None:
    served = serve(max_body_bytes=4_000, max_text_characters=1_000)
    chunks = (b"x" * 500 for _ in range(20))
    headers = {"Content-Type": "application/json"}
    response = served.client.post("/translate", content=chunks, headers=headers)
    assert (response.status_code, response.json()["error_type"]) == (413, "payload_too_large")


def test_every_error_class_has_an_answer() -> None:
    for base in (errors.ServiceError, engine_errors.EngineError):
        for error_class in base.__subclasses__():
            if error_class is not errors.StartupError:  # before there is anybody to answer
                assert error_class in ANSWERS


def test_errors_under_v1_name_the_parameter() -> None:
    error = body_of("/v1/completions", errors.InvalidRequestError("bad", parameter="n"))["error"]
    assert error == {"message": "bad", "type": "invalid_request_error", "param": "n", "code": "validation"}


def test_server_errors_under_v1_are_typed_as_such() -> None:
    error = body_of("/v1/completions", engine_errors.ModelUnavailableError("x"))["error"]
    assert isinstance(error, dict)
    assert error["type"] == "server_error"


def test_the_frameworks_validation_has_our_shape() -> None:
    problem = {"loc": ("body", "n"), "msg": "Input should be a valid integer", "input": "x", "type": "int_parsing"}
    error = RequestValidationError([problem])
    assert body_of("/generate", error) == {
        "error": "Input validation error: n: Input should be a valid integer. Given: 'x'",
        "error_type": "validation",
    }


def test_tei_writes_its_kinds_in_capitals() -> None:
    assert body_of("/embed", errors.InputError("bad")) == {"error": "bad", "error_type": "Validation"}
    assert body_of("/embed_all", errors.BodyTooLargeError(5))["error_type"] == "PayloadTooLarge"


def test_a_text_that_the_tokenizer_cannot_cut_is_answered_by_us(serve: Serve) -> None:
    """An expression of its file tries too many ways through the text, and the library panics."""
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_json())
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(a|aa)+$"), "isolated")
    served = serve(models=lambda engine: [dataclasses.replace(fake_model(engine), tokenizer=Tokenizer(backend))])
    response = served.translate(q="a" * 60 + "b")
    assert response.status_code == 422
    assert response.json()["error_type"] == "tokenizer"
    assert "cannot cut this text into tokens" in response.json()["error"]
