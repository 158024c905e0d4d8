from __future__ import annotations

import io
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from service.attention.pictures import check_picture, draw
from service.attention.selection import Outline, Wishes, select
from service.errors import InputError
from tests.service.attention.reports import HOSTILE, report, sequence
from tests.service.attention_fakes import FakeAttentionEngine, support

SVG = "{http://www.w3.org/2000/svg}"


def svg_texts(content: bytes) -> list[str]:
    root = ET.fromstring(content)
    assert root.tag == f"{SVG}svg"
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


def pixels(content: bytes) -> tuple[int, int]:
    image = Image.open(io.BytesIO(content))
    image.load()
    assert image.format == "PNG"
    return image.size


def test_a_png_has_the_size_that_was_checked() -> None:
    content = draw(report(), "png")
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    selection = select(Wishes(), support(FakeAttentionEngine("encoder_decoder")), "m")
    made = report()
    assert made.source is not None
    assert made.target is not None
    outline = Outline(selection, made.source.labels(), made.target.labels())
    width, height = pixels(content)
    check_picture(outline, (width + 1) * (height + 1))
    with pytest.raises(InputError, match=r"the picture would have \d+ pixels .* allowed: "):
        check_picture(outline, (width - 1) * (height - 1))


def test_a_png_is_more_than_one_colour() -> None:
    image = Image.open(io.BytesIO(draw(report(), "png"))).convert("RGB")
    colours = image.getcolors(maxcolors=1_000_000)
    assert colours is not None
    assert len(colours) > 20


def test_an_svg_has_every_token_and_the_title_of_every_map() -> None:
    texts = svg_texts(draw(report(), "svg"))
    for token in ("<s>", "the", "key", "der", "alte", "Schlüssel"):
        assert texts.count(token) == (8 if token == "<s>" else 4)  # two layers of two heads, <s> on both axes
    for title in ("cross, layer 0, head 1", "cross, layer 1, head 0"):
        assert title in texts


def test_the_same_report_gives_the_same_bytes() -> None:
    assert draw(report(), "svg") == draw(report(), "svg")
    assert draw(report(), "png") == draw(report(), "png")


@pytest.mark.parametrize("token", [HOSTILE[:16], "&amp;", "$x^2$", "@1@", "日本語", "\u202e", "a\nb", "x" * 40, ""])
def test_tokens_of_any_kind_are_drawn(token: str) -> None:
    made = report(source=sequence("the", token))
    texts = svg_texts(draw(made, "svg"))
    shown = {"\u202e": "\\u202e", "a\nb": "a\\u000ab", "x" * 40: "x" * 15 + "…"}.get(token, token)
    assert texts.count(shown.strip()) >= 4
    assert pixels(draw(made, "png"))[0] > 100


def test_norms_are_drawn_where_the_report_has_them() -> None:
    made = report()
    (maps,) = made.maps
    doubled = type(maps)(maps.kind, maps.layers, maps.heads, maps.weights * 2)
    with_norms = report(norms=(doubled,))
    # The scale of colours goes to the largest number, so only the ticks of the bar tell them apart.
    assert svg_texts(draw(with_norms, "svg")) != svg_texts(draw(made, "svg"))


def test_an_aggregate_is_named_in_the_title() -> None:
    made = report()
    (maps,) = made.maps
    joined = type(maps)("cross", (1,), None, maps.weights[:1, :1])
    assert "cross, layer 1, mean" in svg_texts(draw(report(aggregate="mean", maps=(joined,)), "svg"))


def test_drawing_leaves_no_trace_in_the_process() -> None:
    code = """
import sys
import service.app
assert "matplotlib" not in sys.modules
from service.attention.pictures import draw
from tests.service.attention.reports import report
import matplotlib
before = matplotlib.rcParams.copy()
draw(report(), "svg"); draw(report(), "png")
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
