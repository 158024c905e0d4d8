from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np

from service.heads.attend.html import content_policy, to_html
from tests.service.heads.attend.reports import HOSTILE, report, sequence


class Page(HTMLParser):
    """Every tag with its attributes, and the text of every script and style."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self._inside: str | None = None
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in self.blocks else None

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.blocks[self._inside].append(data)

    @property
    def data(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.blocks["script"][0])
        return loaded


def test_the_page_carries_the_whole_report() -> None:
    made = report()
    data = Page(to_html(made)).data
    assert [token["text"] for token in data["target"]["tokens"]] == ["<s>", "der", "alte", "Schlüssel"]
    assert data["target"]["tokens"][0]["predicts"]["text"] == "der"
    maps = data["maps"]["cross"]
    assert (maps["layers"], maps["heads"], maps["shape"]) == ([0, 1], [0, 1], [2, 2, 4, 3])
    steps = np.frombuffer(base64.b64decode(maps["data"]), "<u2").reshape(maps["shape"])
    np.testing.assert_allclose(steps / 65535 * maps["scale"], made.maps[0].weights, atol=1e-5)


def test_the_page_needs_nothing_from_anywhere() -> None:
    page = Page(to_html(report()))
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "base", "form action")
        for name in ("src", "href", "action", "srcset"):
            assert (attributes.get(name) or "data:,") == "data:,", f"{tag} {name}"
    script, style = page.blocks["script"][1], page.blocks["style"][0]
    assert set(re.findall(r"\w+://[^\s\"']+", script + style)) == {"http://www.w3.org/2000/svg"}  # a name, no address
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", script + style)


def test_the_page_allows_its_own_script_and_style_alone() -> None:
    page = Page(to_html(report()))
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy == content_policy()
    assert policy.startswith("default-src 'none'; ")
    for text in (page.blocks["script"][1], page.blocks["style"][0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_a_hostile_token_stays_text() -> None:
    hostile = sequence(HOSTILE, "<!--", "]]>", "{{script}}", "\u2028")
    content = to_html(report(source=hostile, target=hostile, model=HOSTILE))
    page = Page(content)
    assert [token["text"] for token in page.data["source"]["tokens"]][1:] == [
        HOSTILE,
        "<!--",
        "]]>",
        "{{script}}",
        "\u2028",
    ]
    assert page.data["model"] == HOSTILE
    assert len(page.blocks["script"]) == 2
    assert "img" not in {tag for tag, _ in page.tags}
    assert content.decode().count("</script>") == 2


def test_the_script_writes_texts_as_text() -> None:
    script = Page(to_html(report())).blocks["script"][1]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
