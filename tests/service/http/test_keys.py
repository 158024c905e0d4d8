"""Named keys: their file, their limits and rights, and what is kept of their use."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from service.errors import QuotaExceededError, StartupError
from service.http.keys import ApiKey, load_keys
from service.http.usage import UsageBook
from service.settings import Settings
from tests.service.conftest import Running, Serve, ServeEmbedder

KEYS = f"""
[[keys]]
name = "shop"
key = "schlüssel"
characters_per_month = 20
[[keys]]
name = "boss"
sha256 = "{hashlib.sha256(b"secret-of-boss").hexdigest()}"
requests_per_minute = 2
rights = ["use", "administer"]
[[keys]]
name = "watcher"
key = "secret-of-watcher"
rights = ["administer"]
"""


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.write_text(KEYS, encoding="utf-8")
    return path


def bearer(key: str, encoding: str = "utf-8") -> dict[bytes, bytes]:
    return {b"Authorization": b"Bearer " + key.encode(encoding)}


def translate(served: Running, key: str, text: str = "Good morning.") -> httpx.Response:
    fields = {"q": text, "source": "en", "target": "de"}
    return served.client.post("/translate", json=fields, headers=bearer(key))


def test_a_key_of_the_file_is_known_by_itself_or_its_digest(serve: Serve, keys_file: Path) -> None:
    served = serve(api_keys="plain", api_keys_file=keys_file)
    for key in ("schlüssel", "secret-of-boss", "plain"):
        assert translate(served, key).status_code == 200
    assert translate(served, "guess").status_code == 403
    latin = bearer("schlüssel", "latin-1")
    assert served.client.post("/detect", json={"q": "Hello there"}, headers=latin).status_code == 200
    in_body = {"q": "Hello there", "api_key": "schlüssel"}
    assert served.client.post("/detect", json=in_body).status_code == 200


def test_characters_of_a_month_are_counted_and_refused(serve: Serve, keys_file: Path) -> None:
    served = serve(api_keys_file=keys_file)
    assert translate(served, "schlüssel").status_code == 200  # 13 of 20
    refused = translate(served, "schlüssel")
    assert (refused.status_code, refused.json()["error_type"]) == (429, "quota_exceeded")
    assert refused.json()["error"] == (
        "The API key has used 13 of its 20 characters this month, and the request has 13 more"
    )
    headers = bearer("schlüssel")
    deepl = served.client.post("/v2/translate", json={"text": ["Good morning."], "target_lang": "DE"}, headers=headers)
    assert (deepl.status_code, set(deepl.json())) == (456, {"message"})
    assert served.client.get("/v2/usage", headers=headers).json() == {"character_count": 13, "character_limit": 20}
    assert translate(served, "schlüssel", "Hello.").status_code == 200
    assert translate(served, "secret-of-boss", "x" * 100).status_code == 200  # has no such limit


@pytest.mark.parametrize(
    ("path", "fields", "num_characters"),
    [
        ("/translate", {"q": ["Good", "morning."], "source": "en", "target": "de"}, 12),
        ("/translate", {"q": "Good morning.", "source": "en", "target": "de", "stream": True}, 13),
        ("/v2/translate", {"text": ["Good", "morning."], "source_lang": "EN", "target_lang": "DE"}, 12),
        ("/embed", {"inputs": ["a b", "c"]}, 4),
        ("/embed_all", {"inputs": "a b"}, 3),
        ("/v1/embeddings", {"input": "a b", "model": "mini"}, 3),
    ],
)
def test_every_head_charges_its_texts(
    serve_embedder: ServeEmbedder, path: str, fields: dict[str, object], num_characters: int
) -> None:
    served = serve_embedder()
    answer = served.client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    assert served.client.get("/v2/usage").json()["character_count"] == num_characters


def test_what_fails_is_not_charged(serve: Serve, keys_file: Path) -> None:
    served = serve(api_keys_file=keys_file)
    served.engine.max_waiting = 0
    assert translate(served, "schlüssel").status_code == 429
    usage = served.client.get("/v2/usage", headers=bearer("schlüssel")).json()
    assert usage["character_count"] == 0


def test_a_key_may_have_a_rate_of_its_own(serve: Serve, keys_file: Path) -> None:
    served = serve(api_keys_file=keys_file, requests_per_minute=1)
    assert [translate(served, "secret-of-boss").status_code for _ in range(3)] == [200, 200, 429]
    assert [translate(served, "schlüssel", "Hi.").status_code for _ in range(2)] == [200, 429]  # the client's


def test_rights(serve: Serve, keys_file: Path) -> None:
    served = serve(api_keys_file=keys_file, api_keys="plain")
    refused = translate(served, "secret-of-watcher")
    assert (refused.status_code, refused.json()["error"]) == (403, "The API key 'watcher' has not the right to use")
    assert served.client.get("/usage", headers=bearer("schlüssel")).status_code == 403
    assert served.client.get("/usage").status_code == 400
    translate(served, "schlüssel")
    translate(served, "plain", "Hi.")
    used = {each["name"]: each for each in served.client.get("/usage", headers=bearer("secret-of-watcher")).json()}
    assert list(used) == ["default", "shop", "boss", "watcher"]
    assert used["shop"] == {
        "name": "shop",
        "characters": 13,
        "requests": 1,
        "characters_per_month": 20,
        "requests_per_minute": None,
    }
    assert (used["default"]["characters"], used["watcher"]["requests"]) == (3, 1)


def test_without_keys_everybody_is_counted_together(serve: Serve) -> None:
    served = serve()
    served.client.post("/translate", json={"q": "Hello.", "source": "en", "target": "de"})
    assert served.client.get("/v2/usage").json() == {"character_count": 6, "character_limit": 10**12}


def test_metrics_show_the_use_and_logs_show_no_key(
    serve: Serve, keys_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served = serve(api_keys_file=keys_file)
    translate(served, "schlüssel")
    text = served.client.get("/metrics").text
    assert 'polyhead_key_characters{key="shop"} 13.0' in text
    assert 'polyhead_key_characters_limit{key="shop"} 20.0' in text
    assert 'polyhead_key_requests{key="shop"} 1.0' in text
    shown = caplog.text + text + "".join(str(vars(record)) for record in caplog.records)
    assert "schlüssel" not in shown
    assert hashlib.sha256("schlüssel".encode()).hexdigest() not in shown


def test_use_is_kept_over_a_restart(serve: Serve, keys_file: Path, tmp_path: Path) -> None:
    book = UsageBook(tmp_path / "usage.db", writing_seconds=0.01)
    book.start()
    book.charge(ApiKey("shop"), 7)
    book.close()
    served = serve(api_keys_file=keys_file, usage_file=tmp_path / "usage.db")
    translate(served, "schlüssel")
    assert served.client.get("/v2/usage", headers=bearer("schlüssel")).json()["character_count"] == 20


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    first, second = (UsageBook(tmp_path / "usage.db", writing_seconds=60) for _ in range(2))
    key = ApiKey("shop", characters_per_month=10)
    for book in (first, second):
        book.charge(key, 4)
        book.count_request("shop")
        book._write()
    assert (second.used("shop").characters, second.used("shop").requests) == (8, 2)
    with pytest.raises(QuotaExceededError):
        second.charge(key, 3)
    first.charge(key, 3)  # has not heard of the other's
    first._write()
    assert first.used("shop").characters == 11


def test_a_month_begins_anew_and_a_refund_goes_to_its_own(tmp_path: Path) -> None:
    times = [datetime(2026, 11, 30, tzinfo=UTC)]
    book = UsageBook(tmp_path / "usage.db", now=lambda: times[0])
    key = ApiKey("shop", characters_per_month=10)
    month = book.charge(key, 10)
    times[0] = datetime(2026, 12, 1, tzinfo=UTC)
    assert book.charge(key, 9) == "2026-12"
    book.refund("shop", month, 10)
    book._write()
    assert book.used("shop").characters == 9
    with sqlite3.connect(tmp_path / "usage.db") as connection:
        rows = connection.execute("SELECT month, characters FROM usage").fetchall()
    connection.close()
    assert rows in ([("2026-12", 9)], [("2026-11", 0), ("2026-12", 9)])


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    book = UsageBook(path)
    book.charge(ApiKey("shop"), 5)
    path.unlink()
    path.mkdir()
    with pytest.raises(sqlite3.Error):
        book._write()
    assert book.used("shop").characters == 5
    path.rmdir()
    book._write()
    assert (book.used("shop").characters, UsageBook(path).used("shop").characters) == (5, 5)


def test_a_usage_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    path.write_text("not a database, but a text of some length" * 30)
    with pytest.raises(StartupError, match=r"POLYHEAD_USAGE_FILE \(--usage-file\) .* cannot be used"):
        UsageBook(path)


ONE = '[[keys]]\nname = "one"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[keys", "is not TOML"),
        ("", "keys: Field required"),
        (ONE, "keys.0: Value error, give either key or sha256"),
        (ONE + f'key = "hidden"\nsha256 = "{"0" * 64}"', "give either key or sha256"),
        (ONE + 'sha256 = "hidden"', "keys.0.sha256: String should match"),
        (ONE + 'key = "hidden"\nrights = ["rule"]', "'use' or 'administer'"),
        (ONE + 'key = "hidden"\ncharacters_per_month = 0', "characters_per_month: Input should be greater"),
        (ONE + 'key = "hidden"\nrate = 1', "keys.0.rate: Extra inputs"),
        (ONE + 'key = "hidden"\n' + ONE + 'key = "other"', "the same name stands there twice: one, one"),
        (ONE + 'key = "hidden"\n' + ONE.replace("one", "two") + 'key = "hidden"', "the same key stands there twice"),
        (ONE.replace("one", "default") + 'key = "hidden"', "the name default is that of the keys without one"),
        (ONE.replace("one", "a b") + 'key = "hidden"', "keys.0.name"),
    ],
)
def test_a_file_that_says_what_cannot_be_is_refused_without_its_keys(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(StartupError) as caught:
        load_keys(Settings(api_keys_file=path))
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be read"):
        load_keys(Settings(api_keys_file=tmp_path / "none.toml"))
