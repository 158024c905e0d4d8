"""The clients that people have, unchanged."""

from __future__ import annotations

import deep_translator
import libretranslatepy
import pytest
from deep_translator.exceptions import AuthorizationException

from tests.service.conftest import Running, Serve


def test_libretranslatepy(server: Running) -> None:
    api = libretranslatepy.LibreTranslateAPI(server.url)
    assert api.translate("Good morning.", "en", "de") == "GOOD MORNING."
    assert api.detect("Where is the key to this old house?")[0]["language"] == "en"
    assert [language["code"] for language in api.languages()] == ["de", "en"]


def test_libretranslatepy_with_a_key(serve: Serve) -> None:
    served = serve(api_keys="one")
    api = libretranslatepy.LibreTranslateAPI(served.url, api_key="one")
    assert api.translate("Hello.", "en", "de") == "HELLO."
    assert api.languages()


def deep(url: str, key: str = "none") -> deep_translator.LibreTranslator:
    return deep_translator.LibreTranslator(source="en", target="de", custom_url=f"{url}/", api_key=key)


def test_deep_translator(server: Running) -> None:
    assert deep(server.url).translate("Good morning & good night?") == "GOOD MORNING & GOOD NIGHT?"
    assert deep(server.url).translate_batch(["One.", "Two."]) == ["ONE.", "TWO."]


def test_deep_translator_sees_a_wrong_key(serve: Serve) -> None:
    served = serve(api_keys="one")
    assert deep(served.url, "one").translate("Hello.") == "HELLO."
    with pytest.raises(AuthorizationException):
        deep(served.url, "two").translate("Hello.")
