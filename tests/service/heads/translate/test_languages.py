from __future__ import annotations

from tests.service.conftest import Running


def test_languages_and_their_targets(server: Running) -> None:
    assert server.client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]


def test_languages_ignores_a_form_body(server: Running) -> None:
    assert server.client.request("GET", "/languages", data={"api_key": "x"}).status_code == 200


def test_detect_gives_the_best_first(server: Running) -> None:
    found = server.client.post("/detect", json={"q": "Wo ist denn der Schlüssel zu diesem Haus?"}).json()
    assert found[0]["language"] == "de"
    assert 50 < found[0]["confidence"] <= 100
    assert sorted(found, key=lambda item: -item["confidence"]) == found


def test_detect_takes_forms(server: Running) -> None:
    found = server.client.post("/detect", data={"q": "Where is the key to this old house?"}).json()
    assert found[0]["language"] == "en"


def test_detect_finds_nothing(server: Running) -> None:
    assert server.client.post("/detect", json={"q": "123"}).json() == [{"confidence": 0.0, "language": "en"}]


def test_detect_needs_q(server: Running) -> None:
    response = server.client.post("/detect", json={})
    assert response.status_code == 400
    assert response.json()["error"] == "Invalid request: missing q parameter"


def test_frontend_settings(server: Running) -> None:
    body = server.client.get("/frontend/settings").json()
    formats = body.pop("supportedFilesFormat")
    assert {".txt", ".html", ".docx", ".srt"} <= set(formats)
    assert body == {
        "charLimit": 100_000,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": "de", "name": "German"},
        },
    }
