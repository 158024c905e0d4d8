from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from service.logs import configure_logging
from tests.service.conftest import Running, Serve, wait_until


def test_a_request_id_is_made(server: Running) -> None:
    first, second = (server.client.get("/languages").headers["x-request-id"] for _ in range(2))
    assert len(first) == 32
    assert first != second


def test_a_clients_request_id_is_returned(server: Running) -> None:
    response = server.client.get("/nothing", headers={"X-Request-ID": "trace-1/a:b"})
    assert response.headers["x-request-id"] == "trace-1/a:b"


@pytest.mark.parametrize("given", ["x" * 129, "a b", 'a"b', "ä", "<script>"])
def test_a_bad_request_id_is_replaced(server: Running, given: str) -> None:
    response = server.client.get("/languages", headers={b"X-Request-ID": given.encode()})
    assert response.headers["x-request-id"] != given
    assert len(response.headers["x-request-id"]) == 32


def test_a_request_has_one_log_line_without_its_text(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(api_keys="my-secret-key")
    with caplog.at_level(logging.INFO, "service.access"):
        response = served.client.post(
            "/translate?trace=1",
            json={"q": "private words", "source": "en", "target": "de", "api_key": "my-secret-key"},
            headers={"X-Request-ID": "abc"},
        )
        wait_until(lambda: any(record.name == "service.access" for record in caplog.records))
    assert response.status_code == 200
    (line,) = (vars(record) for record in caplog.records if record.name == "service.access")
    assert (line["request_id"], line["method"], line["route"], line["status"]) == ("abc", "POST", "/translate", 200)
    assert line["input_tokens"] > 2
    assert line["output_tokens"] > 0
    assert line["queue_ms"] == 2.0
    assert line["duration_ms"] >= line["inference_ms"] >= 0
    assert not any(secret in str(line).lower() for secret in ("private", "my-secret-key"))


def test_logs_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("info")
        logging.getLogger("a").warning("gr\u00fc\u00dfe", extra={"status": 200})
        logging.getLogger("a").debug("unseen")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"], entry["status"]) == (
        "WARNING",
        "a",
        "gr\u00fc\u00dfe",
        200,
    )
    assert entry["time"]


def test_security_headers(server: Running) -> None:
    headers = server.client.get("/languages").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_other_origins_may_not_call_by_default(server: Running) -> None:
    headers = server.client.get("/languages", headers={"Origin": "https://a.example"}).headers
    assert "access-control-allow-origin" not in headers


def test_listed_origins_may_call(serve: Serve) -> None:
    served = serve(cors_origins="https://a.example")
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    response = served.client.options("/translate", headers=preflight)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "https://a.example")
    served.engine.failure = RuntimeError("boom")
    failed = served.client.post(
        "/translate", json={"q": "a", "source": "en", "target": "de"}, headers={"Origin": "https://a.example"}
    )
    assert (failed.status_code, failed.headers["access-control-allow-origin"]) == (500, "https://a.example")
    other = served.client.get("/languages", headers={"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("origins", ["*", "https://a.example"])
def test_a_page_may_send_any_header(serve: Serve, origins: str) -> None:
    """openai-node in a browser asks for those that its preflight names."""
    names = "authorization,content-type,x-stainless-arch,x-stainless-retry-count"
    preflight = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": names,
    }
    response = serve(cors_origins=origins).client.options("/v1/embeddings", headers=preflight)
    assert response.status_code == 200
    allowed = response.headers["access-control-allow-headers"].split(",")
    assert set(names.split(",")) <= {name.strip() for name in allowed}


@pytest.mark.parametrize("path", ["/health", "/languages", "/info", "/metrics", "/v1/models", "/docs", "/", "/nothing"])
def test_head_is_answered_where_get_is(server: Running, path: str) -> None:
    browser = {"Accept": "text/html"}
    head, get = server.client.head(path, headers=browser), server.client.get(path, headers=browser)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path in {"/languages", "/health"}:  # what does not change between the two
        assert head.headers["content-length"] == get.headers["content-length"]


def test_head_is_refused_where_get_is(server: Running) -> None:
    response = server.client.head("/translate")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("prefix", ["/polyhead/api", ""], ids=["left on", "removed"])
def test_the_service_lives_below_a_path(serve: Serve, prefix: str) -> None:
    """For proxies that leave the prefix on and for those that remove it."""
    served = serve(root_path="/polyhead/api/")
    browser = {"Accept": "text/html"}
    page = served.client.get(f"{prefix}/", headers=browser)
    assert page.status_code == 200
    for link in re.findall(r'(?:src|href|data-module)="([^#"][^"]*)"', page.text):
        assert not link.startswith("/")
        assert served.client.get(f"{prefix}/{link}").status_code == 200
    translated = served.client.post(f"{prefix}/translate", json={"q": "Hello.", "source": "en", "target": "de"})
    assert translated.json()["translatedText"] == "HELLO."
    wrong = served.client.post(f"{prefix}/v1/nothing")
    assert wrong.json()["error"]["code"] == "not_found"
    docs = served.client.get(f"{prefix}/docs", headers=browser)
    assert "unsafe-inline" in docs.headers["content-security-policy"]
    links = re.findall(r"""["'](/polyhead/api/[^"']*)["']""", docs.text)
    assert len(links) >= 3
    for link in links:
        assert served.client.get(link.removeprefix("/polyhead/api") if not prefix else link).status_code == 200
    assert served.client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/polyhead/api"}]
    document: dict[str, Any] = {"file": ("a.txt", b"Hello."), "source": (None, "en"), "target": (None, "de")}
    link = served.client.post(f"{prefix}/translate_file", files=document).json()["translatedFileUrl"]
    assert link.startswith(f"{served.url}/polyhead/api/download_file/")
    assert served.client.get(link).content == b"HELLO."


def test_the_path_without_its_slash_leads_to_the_page(serve: Serve) -> None:
    response = serve(root_path="/polyhead").client.get("/polyhead")
    assert (response.status_code, response.headers["location"]) == (307, "/polyhead/")


KEYED = {"q": "Hello.", "source": "en", "target": "de"}


def test_a_missing_key_is_400(serve: Serve) -> None:
    served = serve(api_keys="one,two")
    response = served.client.post("/translate", json=KEYED)
    assert response.status_code == 400
    assert response.json()["error"].startswith("Please contact the server operator to get an API key")


def test_a_wrong_key_is_403(serve: Serve) -> None:
    served = serve(api_keys="one,two")
    for key in ("three", "on", "one,two", ["one"], 1):
        response = served.client.post("/translate", json=KEYED | {"api_key": key})
        assert (response.status_code, response.json()["error"]) == (403, "Invalid API key")
    assert not served.engine.requests


def test_a_right_key_is_taken_from_wherever_it_stands(serve: Serve) -> None:
    served = serve(api_keys="one,two")
    bearer = {"Authorization": "Bearer two"}
    responses = [
        served.client.post("/translate", json=KEYED | {"api_key": "one"}),
        served.client.post("/translate", data=KEYED | {"api_key": "two"}),
        served.client.post("/translate", params=KEYED | {"api_key": "one"}),
        served.client.post("/translate", params={"api_key": "one"}, json=KEYED),
        served.client.post("/translate", json=KEYED, headers=bearer),
        served.client.post("/detect", json={"q": "Hello."}, headers=bearer),
    ]
    assert [response.status_code for response in responses] == [200] * 6
    assert served.client.post("/detect", json={"q": "Hello."}).status_code == 400
    settings = served.client.get("/frontend/settings").json()
    assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)


def test_requests_per_minute(serve: Serve) -> None:
    served = serve(requests_per_minute=3)
    assert [served.translate().status_code for _ in range(4)] == [200, 200, 200, 429]
    response = served.client.post("/detect", json={"q": "a"})
    assert response.json() == {"error": "Slowdown: 3 per 1 minute", "error_type": "overloaded"}
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert served.client.get("/health").status_code == 200
    assert served.client.get("/languages").status_code == 200
