"""DeepL's own clients, unchanged, with the calls that their users make."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import deepl
import pytest

from tests.service.conftest import Running, Serve, wait_until

ROOT = Path(__file__).resolve().parents[5]


def client(served: Running, key: str = "any") -> deepl.DeepLClient:
    return deepl.DeepLClient(key, server_url=served.url)


def test_texts(server: Running) -> None:
    one = client(server).translate_text("Good morning.", target_lang="DE", source_lang="EN")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("GOOD MORNING.", "EN", 13)
    texts = ["Where is the key?", "The house is old."]
    many = client(server).translate_text(
        texts,
        target_lang="DE",
        context="An old house.",
        split_sentences=deepl.SplitSentences.NO_NEWLINES,
        preserve_formatting=True,
        formality=deepl.Formality.PREFER_MORE,
        model_type="latency_optimized",
    )
    assert isinstance(many, list)
    assert [each.text for each in many] == [text.upper() for text in texts]
    assert {each.model_type_used for each in many} == {"latency_optimized"}


def test_variants(server: Running) -> None:
    for target in (deepl.Language.ENGLISH_AMERICAN, "en-gb"):
        found = client(server).translate_text("Wo ist der Schlüssel?", target_lang=target)
        assert isinstance(found, deepl.TextResult)
        assert (found.text, found.detected_source_lang) == ("WO IST DER SCHLÜSSEL?", "DE")


def test_tags(server: Running) -> None:
    found = client(server).translate_text(
        "<r>Good <x>morning</x> my <b>friend</b></r>",
        source_lang="EN",
        target_lang="DE",
        tag_handling="xml",
        tag_handling_version="v2",
        outline_detection=False,
        ignore_tags=["x", "y"],
        splitting_tags="r",
        non_splitting_tags="b,i",
    )
    assert isinstance(found, deepl.TextResult)
    assert found.text == "<r>GOOD <x>morning</x> MY <b>FRIEND</b></r>"


def test_languages(server: Running) -> None:
    api = client(server)
    assert [str(language) for language in api.get_source_languages()] == ["DE", "EN"]
    targets = api.get_target_languages()
    assert [language.code for language in targets] == ["DE", "EN-GB", "EN-US"]
    assert [language.supports_formality for language in targets] == [False] * 3
    assert api.get_glossary_languages() == []


def test_glossaries(server: Running) -> None:
    api = client(server)
    assert api.list_glossaries() == []
    assert api.list_multilingual_glossaries() == []
    with pytest.raises(deepl.GlossaryNotFoundException):
        api.get_glossary("x")
    with pytest.raises(deepl.DeepLException, match="keeps no glossaries"):
        api.create_glossary("mine", "EN", "DE", {"a": "b"})
    with pytest.raises(deepl.DeepLException, match="keeps none"):
        api.translate_text("Hi.", source_lang="EN", target_lang="DE", glossary="x")


def test_refusals(server: Running) -> None:
    with pytest.raises(deepl.DeepLException, match="formality"):
        client(server).translate_text("Hi.", source_lang="EN", target_lang="DE", formality="more")
    with pytest.raises(deepl.DeepLException, match="FR"):
        client(server).translate_text("Hi.", source_lang="EN", target_lang="FR")


def test_keys(serve: Serve) -> None:
    served = serve(api_keys="one")
    found = client(served, "one").translate_text("Hi there.", source_lang="EN", target_lang="DE")
    assert isinstance(found, deepl.TextResult)
    with pytest.raises(deepl.AuthorizationException):
        client(served, "two").translate_text("Hi there.", target_lang="DE")


def test_usage(serve: Serve) -> None:
    served = serve()
    client(served).translate_text("Good morning.", source_lang="EN", target_lang="DE")
    usage = client(served).get_usage()
    assert (usage.character.count, usage.character.limit, usage.any_limit_reached) == (13, 10**12, False)


def test_a_quota(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[keys]]\nname = "one"\nkey = "one:fx"\ncharacters_per_month = 13')
    served = serve(api_keys_file=keys)
    client(served, "one:fx").translate_text("Good morning.", source_lang="EN", target_lang="DE")
    assert client(served, "one:fx").get_usage().any_limit_reached
    with pytest.raises(deepl.QuotaExceededException):
        client(served, "one:fx").translate_text("Good morning.", source_lang="EN", target_lang="DE")


def test_documents(server: Running, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("Good morning.\n")
    api = client(server)
    with source.open("rb") as file:
        handle = api.translate_document_upload(file, source_lang="EN", target_lang="DE")
    # translate_document asks every five seconds alone.
    wait_until(lambda: api.translate_document_get_status(handle).done)
    assert api.translate_document_get_status(handle).billed_characters == 14
    with target.open("wb") as output:
        api.translate_document_download(handle, output)
    assert target.read_text() == "GOOD MORNING.\n"
    with pytest.raises(deepl.DeepLException, match="pdf"):
        api.translate_document_upload(b"x", filename="a.pdf", target_lang="DE")
    with pytest.raises(deepl.DeepLException, match="no such job"):
        api.translate_document_get_status(handle)


def test_deepl_node(server: Running, tmp_path: Path) -> None:
    node, modules = shutil.which("node"), os.environ.get("DEEPL_NODE_MODULES", str(ROOT / "node_modules"))
    if node is None or not Path(modules, "deepl-node").is_dir():
        pytest.skip("needs node, and deepl-node: npm install deepl-node here, or DEEPL_NODE_MODULES names its folder")
    script = Path(__file__).with_name("node_client.mjs")
    command = [node, str(script), server.url, str(tmp_path), f"{modules}/"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert (found["one"]["text"], found["one"]["detectedSourceLang"]) == ("GOOD MORNING.", "en")
    assert found["one"]["billedCharacters"] == 13
    assert [each["text"] for each in found["many"]] == ["WHERE IS THE KEY?", "THE HOUSE IS OLD."]
    assert found["many"][0]["modelTypeUsed"] == "latency_optimized"
    assert found["tags"]["text"] == "<r>GOOD <x>morning</x></r>"
    assert found["sources"] == ["de", "en"]
    assert found["targets"] == ["de", "en-GB", "en-US"]
    assert found["glossaries"] == []
    assert found["document"] == "GOOD MORNING.\n"
    assert found["usage"]["character"]["limit"] == 10**12
    assert "formality" in found["refused"]
