"""POST /v2/document: upload, ask, fetch."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.heads.translate.documents import _parts, _slices
from tests.service.conftest import Running, Serve, wait_until

LETTER = b"Good morning.\n\nGood night.\n"


def upload(served: Running, name: str = "letter.txt", data: bytes = LETTER, **fields: str) -> httpx.Response:
    return served.client.post("/v2/document", data={"target_lang": "DE"} | fields, files={"file": (name, data)})


def ask(served: Running, handle: dict[str, str], what: str = "") -> httpx.Response:
    body = {"document_key": handle["document_key"]}
    return served.client.post(f"/v2/document/{handle['document_id']}{what}", json=body)


def status(served: Running, handle: dict[str, str]) -> dict[str, Any]:
    answer = ask(served, handle)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def finished(served: Running, handle: dict[str, str]) -> dict[str, Any]:
    wait_until(lambda: status(served, handle)["status"] in ("done", "error"))
    return status(served, handle)


def test_a_document_is_translated_and_given_once(server: Running) -> None:
    handle = upload(server).json()
    assert finished(server, handle) == {
        "document_id": handle["document_id"],
        "status": "done",
        "billed_characters": len(LETTER),
    }
    download = ask(server, handle, "/result")
    assert (download.status_code, download.content) == (200, b"GOOD MORNING.\n\nGOOD NIGHT.\n")
    assert download.headers["content-disposition"] == "attachment; filename*=utf-8''letter.txt"
    assert download.headers["content-security-policy"] == "sandbox"
    for what in ("", "/result"):
        answer = ask(server, handle, what)
        assert (answer.status_code, set(answer.json())) == (404, {"message"})


def test_a_form_asks_too(server: Running) -> None:
    handle = upload(server, source_lang="EN", filename="other.html").json()
    finished(server, handle)
    download = server.client.post(f"/v2/document/{handle['document_id']}/result", data=handle)
    assert b"GOOD MORNING." in download.content
    assert download.headers["content-disposition"].endswith("other.html")


def test_a_document_is_not_ready_before_its_end(serve: Serve) -> None:
    served = serve()
    served.engine.hold()
    handle = upload(served).json()
    wait_until(lambda: bool(status(served, handle)["status"] == "translating"))
    answer = ask(served, handle, "/result")
    assert (answer.status_code, answer.json()) == (503, {"message": "The result is not ready yet"})
    served.engine.release()
    assert finished(served, handle)["status"] == "done"


def test_a_document_waits_where_the_engine_is_full(serve: Serve) -> None:
    served = serve()
    served.engine.max_waiting = 0
    handle = upload(served).json()
    wait_until(lambda: bool(status(served, handle)["status"] == "translating"))
    served.engine.max_waiting = 100
    assert finished(served, handle)["status"] == "done"


def test_a_long_document_tells_how_far_it_is(serve: Serve) -> None:
    served = serve()
    lines = b"Good morning, my friend.\n\n" * 2000
    handle = upload(served, data=lines, source_lang="EN").json()
    assert finished(served, handle)["billed_characters"] == len(lines)
    assert ask(served, handle, "/result").content == lines.upper()


def test_a_document_is_cut_between_its_lines() -> None:
    text = "Good morning, my friend.\n" * 2000
    slices = list(_slices(text))
    assert "".join(slices) == text
    assert [len(part) for part in slices] == [20_025, 20_025, len(text) - 2 * 20_025]
    assert list(_slices("x" * 50_000)) == ["x" * 50_000]
    assert [len(part) for part in _parts(["x" * 9_000] * 7)] == [3, 3, 1]


def test_a_broken_document_says_why(server: Running) -> None:
    handle = upload(server, name="letter.docx", data=b"no archive").json()
    found = finished(server, handle)
    assert found["status"] == "error"
    assert found["error_message"]
    assert ask(server, handle, "/result").status_code == 404


@pytest.mark.parametrize(
    ("fields", "status_code", "word"),
    [
        ({"target_lang": ""}, 400, "target_lang"),
        ({"target_lang": "XX"}, 400, "XX"),
        ({"name": "letter.pdf"}, 400, ".pdf"),
        ({"filename": "letter"}, 400, "format"),
        ({"output_format": "docx"}, 400, "output_format"),
        ({"formality": "more"}, 400, "formality"),
        ({"glossary_id": "abc"}, 404, "abc"),
        ({"data": b"x" * (11 * 1024 * 1024)}, 413, "bytes"),
    ],
)
def test_what_is_wrong_is_said(server: Running, fields: dict[str, Any], status_code: int, word: str) -> None:
    answer = upload(server, **fields)
    assert (answer.status_code, set(answer.json())) == (status_code, {"message"})
    assert word in answer.json()["message"]


def test_a_file_and_a_key_are_needed(server: Running) -> None:
    assert "file" in server.client.post("/v2/document", data={"target_lang": "DE"}).json()["message"]
    handle = upload(server, output_format="TXT").json()
    url = f"/v2/document/{handle['document_id']}"
    assert server.client.post(url, json={}).status_code == 400
    assert server.client.post(url, json={"document_key": "x"}).status_code == 404
    finished(server, handle)


def test_there_is_room_for_some_documents(serve: Serve) -> None:
    served = serve(max_jobs=1)
    handle = upload(served).json()
    full = upload(served)
    assert (full.status_code, full.headers["retry-after"]) == (429, "5")
    finished(served, handle)
    ask(served, handle, "/result")
    assert upload(served).status_code == 200
