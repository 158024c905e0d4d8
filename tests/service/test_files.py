from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.routes.files import plain_name
from tests.service.conftest import Running, Serve, running, wait_until


def upload(
    served: Running, name: str = "letter.txt", data: bytes = b"Good morning.\n\nGood night.\n", **fields: str
) -> httpx.Response:
    form = {"source": "en", "target": "de"} | fields
    return served.client.post("/translate_file", data=form, files={"file": (name, data)})


def test_a_file_is_translated_and_downloaded(server: Running) -> None:
    answer = upload(server)
    assert answer.status_code == 200
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(f"{server.url}/download_file/")
    download = httpx.get(url)
    assert (download.status_code, download.content) == (200, b"GOOD MORNING.\n\nGOOD NIGHT.\n")
    assert download.headers["content-disposition"] == 'attachment; filename="letter.txt"'
    assert download.headers["content-security-policy"] == "sandbox"
    assert download.headers["cache-control"] == "private, no-store"


def test_a_files_language_is_detected_as_a_whole(server: Running) -> None:
    text = "Ja.\n\nWo ist denn der Schlüssel zu diesem alten Haus?\n\nOK.\n"
    url = upload(server, data=text.encode(), source="auto", target="en").json()["translatedFileUrl"]
    assert httpx.get(url).text == text.upper()


def test_names_cannot_be_guessed(server: Running) -> None:
    first, second = (upload(server).json()["translatedFileUrl"].split("/")[-2] for _ in range(2))
    assert first != second
    assert len(first) >= 43


@pytest.mark.parametrize("key", ["x", "..", "..%2F..%2Fetc", "x" * 43])
def test_a_wrong_name_is_404(server: Running, key: str) -> None:
    response = server.client.get(f"/download_file/{key}/passwd")
    assert response.status_code == 404
    assert response.json()["error_type"] == "not_found"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"target": "zz"}, "zz is not supported"),
        ({"name": "virus.exe"}, "Invalid request: file format '.exe' is not supported, use .txt"),
        ({"name": "letter"}, "Invalid request: file format '' is not supported, use .txt"),
    ],
)
def test_a_bad_upload_is_named(server: Running, fields: dict[str, Any], message: str) -> None:
    response = upload(server, **fields)
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


def test_a_missing_file_is_named(server: Running) -> None:
    response = server.client.post("/translate_file", data={"source": "en", "target": "de", "file": "text"})
    assert (response.status_code, response.json()["error"]) == (400, "Invalid request: missing file parameter")


def test_a_damaged_file_is_named(server: Running) -> None:
    response = upload(server, name="letter.docx", data=b"not a zip")
    assert (response.status_code, response.json()["error_type"]) == (400, "validation")


def test_a_file_over_the_limit_is_413(serve: Serve) -> None:
    served = serve(max_file_bytes=1_000)
    assert upload(served, data=b"x" * 1_000).status_code == 200
    response = upload(served, data=b"x" * 1_001)
    assert response.status_code == 413
    assert response.json()["error"] == "Invalid request: the file exceeds the limit of 1000 bytes"


def test_a_file_may_be_longer_than_other_bodies(serve: Serve) -> None:
    served = serve(max_body_bytes=4_000, max_text_characters=1_000)
    assert upload(served, data=b"12345\n" * 2_000).status_code == 200


def test_files_expire_and_leave_the_disk(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    served = serve(file_lifetime_seconds=0.3)
    url = upload(served).json()["translatedFileUrl"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()]
    wait_until(lambda: not [path for path in tmp_path.rglob("*") if path.is_file()])
    response = httpx.get(url)
    assert (response.status_code, response.json()["error_type"]) == (404, "not_found")


def test_the_room_for_files_is_bounded(serve: Serve) -> None:
    served = serve(max_file_bytes=100, max_stored_file_bytes=150)
    assert upload(served, data=b"x" * 100).status_code == 200
    response = upload(served, data=b"y" * 100)
    assert response.status_code == 429
    assert response.json()["error"].startswith("Slowdown: ")
    assert int(response.headers["retry-after"]) > 1_000


def test_nothing_stays_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with running() as served:
        upload(served)
        assert list(tmp_path.rglob("*"))
    assert not list(tmp_path.rglob("*"))


def test_a_client_that_leaves_stops_the_files_work(serve: Serve) -> None:
    served = serve()
    served.engine.hold()
    with pytest.raises(httpx.ReadTimeout):
        served.client.post(
            "/translate_file",
            data={"source": "en", "target": "de"},
            files={"file": ("a.txt", b"Good morning.")},
            timeout=0.5,
        )
    wait_until(lambda: served.engine.num_cancelled == 1)


def test_too_many_files_are_429(serve: Serve) -> None:
    served = serve(max_concurrent_files=1)
    served.engine.hold()
    with ThreadPoolExecutor(8) as pool:
        uploads = [pool.submit(upload, served) for _ in range(8)]
        wait_until(lambda: sum(future.done() for future in uploads) == 3)
        served.engine.release()
        statuses = sorted(future.result().status_code for future in uploads)
    assert statuses == [200] * 5 + [429] * 3


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("../../etc/letter.txt", "letter.txt"),
        ("C:\\Users\\me\\letter.docx", "letter.docx"),
        ("a\r\nb.txt", "a__b.txt"),
        ("x" * 500 + ".html", "x" * 100 + ".html"),
        ("Gr\u00fc\u00dfe.txt", "Gr\u00fc\u00dfe.txt"),
    ],
)
def test_plain_name(given: str, plain: str) -> None:
    assert plain_name(given) == plain
