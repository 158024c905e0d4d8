from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI

from service.engine.core.errors import ModelUnavailableError
from tests.service.conftest import Running, RunningEmbedder, Serve, ServeEmbedder

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def sample(served: Running, name: str) -> dict[str, float]:
    """The series of one metric, by their labels as written."""
    text = served.client.get("/metrics").text
    found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_health_runs_every_model(serve: Serve) -> None:
    served = serve()
    before = len(served.engine.requests)
    response = served.client.get("/health?details=1")
    assert (response.status_code, response.json()) == (200, {"status": "ok", "models": {"en-de": "ok"}})
    assert len(served.engine.requests) == before + 1


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_without_details_health_says_no_more_than_ok(server: Running, path: str) -> None:
    """LibreTranslate's clients compare the whole body."""
    response = server.client.get(path)
    assert (response.status_code, response.content) == (200, b'{"status":"ok"}')


def test_health_is_503_when_a_model_is_dead(serve: Serve) -> None:
    served = serve()
    served.engine.failure = ModelUnavailableError("the loop died")
    response = served.client.get("/health")
    assert response.status_code == 503
    assert response.json() == {
        "error": "unhealthy",
        "error_type": "unhealthy",
        "status": "unhealthy",
        "models": {"en-de": "the loop died"},
    }


def test_health_is_503_when_a_model_raises_anything(serve: Serve) -> None:
    served = serve()
    served.engine.failure = RuntimeError("secret")
    response = served.client.get("/health")
    assert response.status_code == 503
    assert "secret" not in response.text


def test_health_is_503_when_a_loop_hangs(serve: Serve) -> None:
    served = serve(health_timeout_seconds=0.2)
    served.engine.hold()
    served.engine.stepping = False
    response = served.client.get("/health")
    assert response.status_code == 503
    assert response.json()["models"] == {"en-de": "gave no answer within 0.2 seconds"}


@pytest.mark.parametrize(("stepping", "status"), [(True, 200), (False, 503)])
def test_health_tells_a_full_line_from_a_hung_loop(serve: Serve, stepping: bool, status: int) -> None:
    served = serve(health_timeout_seconds=1)
    served.engine.hold()
    served.engine.stepping = stepping
    served.engine.max_waiting = 1
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(served.translate)
        while not served.engine.num_running:
            time.sleep(0.01)
        response = served.client.get("/health?details=1")
        served.engine.release()
        assert waiting.result().status_code == 200
    assert response.status_code == status
    assert response.json()["models"]["en-de"] == (
        "busy" if stepping else "its queue is full and its engine makes no progress"
    )


def test_health_checks_are_shared(serve: Serve) -> None:
    served = serve()
    for _ in range(20):
        assert served.client.get("/health").status_code == 200
    assert len(served.engine.requests) < 5


def test_info_has_teis_fields_and_ours(server: Running) -> None:
    body = server.client.get("/info").json()
    assert body["model_id"] == body["served_model_name"] == "en-de"
    assert body["model_dtype"] == "fp32"
    assert body["model_type"] == {"translate": {"languages": ["de", "en"], "directions": [["de", "en"], ["en", "de"]]}}
    assert body["max_input_length"] == 64
    assert body["max_client_batch_size"] == 256
    assert body["auto_truncate"] is False
    (model,) = body["models"]
    assert (model["name"], model["task"], model["device"], model["precision"]) == ("en-de", "translate", "cpu", "fp32")
    assert body["limits"]["max_text_characters"] == 100_000
    assert body["version"]


def test_info_describes_the_model_that_embeds_where_there_is_one(embedder: RunningEmbedder) -> None:
    body = embedder.client.get("/info").json()
    assert body["model_id"] == body["served_model_name"] == "mini"
    assert body["model_sha"] == "1" * 64
    assert body["model_type"] == {"embedding": {"pooling": "mean"}}
    assert (body["max_input_length"], body["max_client_batch_size"], body["auto_truncate"]) == (16, 32, True)
    assert body["limits"]["max_client_batch_size"] == 32
    translator, mini = body["models"]
    assert (translator["name"], translator["max_source_tokens"]) == ("en-de", 64)
    assert mini == {
        "name": "mini",
        "task": "embed",
        "device": "cpu",
        "precision": "fp32",
        "attention": [],
        "details": {"sha": "1" * 64},
        "max_input_tokens": 16,
        "dimensions": 8,
        "pooling": "mean",
        "normalize": True,
        "prompts": {"query": "a b ", "document": "the "},
        "default_prompt_name": None,
    }


def test_health_and_metrics_cover_models_of_every_task(serve_embedder: ServeEmbedder) -> None:
    served = serve_embedder()
    before = len(served.engine.requests)
    response = served.client.get("/health?details=1")
    assert (response.status_code, response.json()["models"]) == (200, {"en-de": "ok", "mini": "ok"})
    assert len(served.engine.requests) == before + 1
    metrics = served.client.get("/metrics").text
    assert 'polyhead_model_alive{model="mini"} 1.0' in metrics
    broken = serve_embedder()
    broken.engine.failure = ModelUnavailableError("the loop died")
    response = broken.client.get("/health")
    assert (response.status_code, response.json()["models"]) == (503, {"en-de": "ok", "mini": "the loop died"})


def test_metrics_count_requests_by_template_and_status(serve: Serve) -> None:
    served = serve()
    served.translate()
    served.translate(q="")
    served.client.get("/download_file/secret-key/name.txt")
    served.client.get("/scan/one")
    served.client.get("/scan/two")
    counts = sample(served, "polyhead_requests_total")
    assert counts['{method="POST",route="/translate",status="200"}'] == 1
    assert counts['{method="POST",route="/translate",status="400"}'] == 1
    assert counts['{method="GET",route="/download_file/{key}/{name}",status="404"}'] == 1
    assert counts['{method="GET",route="unmatched",status="404"}'] == 2
    assert "secret-key" not in served.client.get("/metrics").text


def test_unknown_methods_share_a_series(serve: Serve) -> None:
    served = serve()
    for method in ("PROPFIND", "LOCK"):
        served.client.request(method, "/translate")
    assert sample(served, "polyhead_requests_total")['{method="OTHER",route="/translate",status="405"}'] == 2


def test_metrics_of_the_engine(serve: Serve) -> None:
    served = serve()
    served.translate(q=["One.", "Two."])
    assert sample(served, "polyhead_generated_tokens_total") == {'{model="en-de"}': 2}
    assert sample(served, "polyhead_queue_seconds_count") == {'{model="en-de"}': 2}
    assert sample(served, "polyhead_batch_size_count")['{model="en-de",phase="encode"}'] == 2
    assert sample(served, "polyhead_padding_tokens_total")['{model="en-de",phase="encode"}'] == 2
    assert sample(served, "polyhead_padding_share") == {'{model="en-de"}': 0.25}
    assert sample(served, "polyhead_max_rows") == {'{model="en-de"}': 64}
    assert sample(served, "polyhead_model_alive") == {'{model="en-de"}': 1}
    assert sample(served, "polyhead_request_seconds_count")['{route="/translate"}'] == 1


def test_two_servers_count_apart(serve: Serve) -> None:
    first, second = serve(), serve()
    first.translate()
    assert sample(second, "polyhead_generated_tokens_total") == {'{model="en-de"}': 0}


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_elsewhere(server: Running, path: str) -> None:
    page = server.client.get(path, headers=BROWSER)
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="([^#"][^"]*)"', page.text)
    assert links
    for link in links:
        assert not link.startswith(("//", "data:"))
        assert server.client.get(link).status_code == 200
    assert not re.search(r"https?://(?!127\.0\.0\.1)", page.text)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    assert "http" not in policy


def test_only_the_docs_may_run_inline_scripts(server: Running) -> None:
    assert "unsafe-inline" in server.client.get("/docs").headers["content-security-policy"]
    assert "unsafe-inline" not in server.client.get("/", headers=BROWSER).headers["content-security-policy"]


def test_openapi_is_written_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.client.get("/openapi.json")
    assert first.headers["content-type"] == "application/json"
    monkeypatch.setattr(FastAPI, "openapi", None)  # calling it would be a 500
    assert server.client.get("/openapi.json").content == first.content


def test_openapi_describes_the_bodies(server: Running) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    content = paths["/translate"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
    assert "beam_size" in content["application/json"]["schema"]["properties"]
    assert "422" not in paths["/translate"]["post"]["responses"]
