from __future__ import annotations

import errno
import io
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from service.engine.core.errors import OverloadedError
from service.heads.translate.file_routes import plain_name
from tests.service.conftest import Running, Serve, running, wait_until


def upload(
    served: Running, name: str = "letter.txt", data: bytes = b"Good morning.\n\nGood night.\n", **fields: str
) -> httpx.Response:
    form = {"source": "en", "target": "de"} | fields
    return served.client.post("/translate_file", data=form, files={"file": (name, data)}, timeout=60)


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


@pytest.mark.parametrize(
    "name", ["a?b#c.txt", "100 %.txt", "a%2Fb%2e.txt", "Grüße an alle.txt", "a&b=c;d+e.txt", "..txt"]
)
def test_names_are_encoded_in_links(server: Running, name: str) -> None:
    url = upload(server, name=name).json()["translatedFileUrl"]
    assert not set("?#& ;") & set(url)
    download = httpx.get(url)
    assert (download.status_code, download.content) == (200, b"GOOD MORNING.\n\nGOOD NIGHT.\n")
    disposition = download.headers["content-disposition"]
    assert f"filename*=utf-8''{quote(name)}" in disposition or f'filename="{name}"' in disposition


def link(served: Running, host: str) -> str:
    answer = served.client.post(
        "/translate_file",
        data={"source": "en", "target": "de"},
        files={"file": ("a.txt", b"Hi.")},
        headers={"Host": host},
    )
    assert answer.status_code == 200, answer.text
    url: str = answer.json()["translatedFileUrl"]
    assert served.client.get(url[url.index("/download_file") :]).content == b"HI."
    return url


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost@evil.example",
        "localhost.evil.example",
        "localhost:x",
        "8.8.8.8",
        "evil.example\\@localhost",
    ],
)
def test_a_link_never_leads_to_a_host_that_only_the_header_names(server: Running, host: str) -> None:
    assert urlsplit(link(server, host)).hostname in (None, "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "start"),
    [
        ("localhost:5000", "http://localhost:5000/"),
        ("LOCALHOST", "http://localhost/"),
        ("127.0.0.1:80", "http://127.0.0.1:80/"),
        ("[::1]:5000", "http://[::1]:5000/"),
    ],
)
def test_a_link_names_an_address_of_the_server(server: Running, host: str, start: str) -> None:
    assert link(server, host).startswith(f"{start}download_file/")


def test_links_begin_with_the_public_url(serve: Serve) -> None:
    served = serve(public_url="https://translate.example.org/api/")
    assert link(served, "evil.example").startswith("https://translate.example.org/api/download_file/")


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


def test_a_full_disk_is_507_and_leaves_nothing(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    served = serve()
    write = Path.write_bytes

    def write_half(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        response = upload(served)
    assert (response.status_code, response.json()["error_type"]) == (507, "storage_full")
    assert "no space" in response.json()["error"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert upload(served).status_code == 200


def test_an_upload_that_finds_no_space_is_507(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()

    def roll_over(self: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile.SpooledTemporaryFile, "rollover", roll_over)  # what a long upload does
        response = upload(served, data=b"Good morning.\n" * 150_000)
    assert (response.status_code, response.json()["error_type"]) == (507, "storage_full")


def test_nothing_stays_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with running() as served:
        upload(served)
        assert list(tmp_path.rglob("*"))
    assert not list(tmp_path.rglob("*"))


def test_a_client_that_leaves_stops_the_files_work(serve: Serve) -> None:
    served = serve()
    upload(served)  # the process that reads files has started
    served.engine.hold()
    with pytest.raises(httpx.ReadTimeout):
        served.client.post(
            "/translate_file",
            data={"source": "en", "target": "de"},
            files={"file": ("a.txt", b"Good morning.")},
            timeout=1,
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


@pytest.mark.parametrize("fault", ["file", "model"])
def test_a_file_that_fails_gives_its_place_back(serve: Serve, fault: str) -> None:
    served = serve(max_concurrent_files=1)  # with one that is translated, four may wait
    for _ in range(6):
        if fault == "file":
            assert upload(served, name="letter.docx", data=b"not a zip").status_code == 400
        else:
            served.engine.failure = OverloadedError("full", retry_after_seconds=1)
            assert upload(served).status_code == 429
    served.engine.failure = None
    assert upload(served).status_code == 200


def test_a_hostile_file_is_answered_while_others_are_served(serve: Serve) -> None:
    served = serve(max_file_cpu_seconds=1)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        body = "<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 300_000
        namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        file.writestr("word/document.xml", f'<w:document xmlns:w="{namespace}">{body}</w:document>')
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            hostile = pool.submit(upload, served, name="a.docx", data=stream.getvalue())
            assert upload(served).status_code == 200
            response = hostile.result()
        assert response.status_code == 400
        assert "processor time" in response.json()["error"]


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
