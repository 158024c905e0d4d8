from __future__ import annotations

import io
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from service.errors import InputError
from service.heads.attend.pictures import check_picture, draw
from service.heads.attend.selection import Outline, Wishes, select
from tests.service.attention_fakes import FakeAttentionEngine, support
from tests.service.heads.attend.reports import HOSTILE, report, sequence

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


def contrast(one: str, other: str) -> float:
    """Of two colours written `#rrggbb`: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""

    def luminance(colour: str) -> float:
        shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def fill(element: ET.Element) -> str:
    style = element.get("style", "")
    assert "opacity" not in style
    found = re.search(r"fill: (#\w{6})", style)
    return found[1] if found else "#000000"  # what SVG fills with unless it is told otherwise


def test_letters_of_an_svg_stand_out_from_the_ground_that_it_brings() -> None:
    # A ground of its own: a viewer's may be as dark as the letters.
    root = ET.fromstring(draw(report(), "svg"))
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    first = next(root.iter(f"{SVG}path"))
    points = [float(number) for number in re.findall(r"-?[\d.]+", first.attrib["d"])]
    assert (max(points[::2]), max(points[1::2])) == pytest.approx((width, height))
    texts = list(root.iter(f"{SVG}text"))
    assert len(texts) > 28
    assert min(contrast(fill(text), fill(first)) for text in texts) >= 4.5


def test_letters_of_a_png_stand_out_from_its_ground() -> None:
    image = Image.open(io.BytesIO(draw(report(), "png")))
    assert image.getchannel("A").getextrema() == (255, 255)  # nothing of the viewer's ground shines through
    pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    # Letters and ground are the greys; the colours of the cells have none.
    shades, counts = np.unique(pixels[(pixels == pixels[:, :1]).all(-1), 0], return_counts=True)
    ground, *greys = ("#" + f"{shade:02x}" * 3 for shade in (shades[counts.argmax()], *shades))
    strong = np.array([contrast(grey, ground) >= 4.5 for grey in greys])
    assert counts[strong].sum() > 500


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
from service.heads.attend.pictures import draw
from tests.service.heads.attend.reports import report
import matplotlib
before = matplotlib.rcParams.copy()
draw(report(), "svg"); draw(report(), "png")
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
