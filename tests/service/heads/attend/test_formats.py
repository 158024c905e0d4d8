"""POST /attention: each format can be read by what reads it."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from service.errors import NotAcceptableError
from service.heads.attend.formats import FORMATS, FormatName, choose_format
from tests.service.attention_fakes import maps_of
from tests.service.heads.attend.conftest import RunningAttention, ServeAttention
from tests.service.heads.attend.test_html import Page
from tests.service.heads.attend.test_pictures import svg_texts

FIELDS: dict[str, Any] = {"kind": "all", "norms": True, "alignment": True}


def exact(attention: RunningAttention, kind: str) -> Any:
    maps = maps_of(attention.engines["encoder_decoder"].requests[-1], "encoder_decoder")
    return np.stack([maps[kind][layer] for layer in sorted(maps[kind])])  # type: ignore[index]


def test_json_is_rounded_to_four_digits(attention: RunningAttention) -> None:
    response = attention.ask(**FIELDS)
    numbers = np.array(response.json()["maps"]["cross"]["weights"])
    np.testing.assert_allclose(numbers, exact(attention, "cross"), atol=5.1e-5)
    written = re.findall(r"[\[,](\d\.\d+)", response.text)
    assert len(written) >= numbers.size
    assert max(map(len, written)) == len("0.1234")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 0.0), ("float16", 1e-3)])
def test_base64_is_little_endian_numbers(attention: RunningAttention, dtype: str, tolerance: float) -> None:
    response = attention.ask(**FIELDS, format=f"base64-{dtype}")
    assert response.headers["content-type"] == "application/json"
    for kind in ("encoder", "decoder", "cross"):
        entry = response.json()["maps"][kind]["weights"]
        assert entry["dtype"] == dtype
        found = np.frombuffer(base64.b64decode(entry["data"]), f"<f{np.dtype(dtype).itemsize}").reshape(entry["shape"])
        np.testing.assert_allclose(found, exact(attention, kind), rtol=tolerance, atol=0)


def test_npz_loads_without_pickle(attention: RunningAttention) -> None:
    response = attention.ask(**FIELDS, format="npz")
    assert response.headers["content-type"] == "application/x-npz"
    assert response.headers["content-disposition"] == 'inline; filename="attention.npz"'
    with np.load(io.BytesIO(response.content), allow_pickle=False) as arrays:
        found = dict(arrays)
    for kind in ("encoder", "decoder", "cross"):
        assert found[kind].dtype == np.float32
        assert np.array_equal(found[kind], exact(attention, kind))
        assert np.array_equal(found[f"norms_{kind}"], 2 * exact(attention, kind))
        np.testing.assert_allclose(found[kind].sum(-1), 1, atol=1e-5)
    num_source = found["cross"].shape[-1]
    assert found["source_tokens"].shape == found["source_ids"].shape == (num_source,)
    assert found["source_spans"].shape == (num_source, 3)
    assert found["source_spans"][0].tolist() == [-1, -1, -1]
    assert found["target_tokens"].tolist() == ["<s>", "a", "b", "c"]
    assert found["links"].shape[1] == 2
    metadata = json.loads(str(found["metadata"]))
    assert metadata["maps"]["encoder"] == {
        "layers": [0, 1, 2],
        "heads": [0, 1],
        "shape": [3, 2, num_source, num_source],
    }
    assert metadata["text"] == "a b c"
    assert metadata["target"]["tokens"][0]["predicts"]["text"] == "a"


def test_png_is_a_picture(attention: RunningAttention) -> None:
    response = attention.ask(format="png")
    assert response.headers["content-type"] == "image/png"
    assert response.content.startswith(b"\x89PNG\r\n\x1a\n")
    image = Image.open(io.BytesIO(response.content))
    image.load()
    assert image.size[0] > 300


def test_svg_is_xml_with_the_tokens_in_it(attention: RunningAttention) -> None:
    response = attention.ask(format="svg", target_text="a <b> &")
    assert response.headers["content-type"] == "image/svg+xml"
    texts = svg_texts(response.content)
    assert {"<2de>", "old", "a", "<", "b", ">", "&"} <= set(texts)
    root = ET.fromstring(response.content)
    links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(value.startswith(("#", "data:image/png;")) for value in links)


def test_html_may_run_its_own_script_only(attention: RunningAttention) -> None:
    response = attention.ask(**FIELDS, format="html")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-inline" not in policy
    data = Page(response.content).data
    assert set(data["maps"]) == set(data["norms"]) == {"encoder", "decoder", "cross"}
    assert data["alignment"]["links"]


@pytest.mark.parametrize("format_name", list(FORMATS))
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_every_format_is_there_for_every_model(
    attention: RunningAttention, architecture: str, format_name: str
) -> None:
    response = attention.ask(architecture, format=format_name, aggregate="rollout")
    assert response.status_code == 200
    assert response.headers["content-type"] == FORMATS[format_name].media_type  # type: ignore[index]


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("image/png", "image/png"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
        ("*/*", "application/json"),
        ("image/*", "image/png"),
        ("application/x-npz;q=0.5, application/json;q=0.4", "application/x-npz"),
    ],
)
def test_accept_chooses_the_format(attention: RunningAttention, accept: str, media_type: str) -> None:
    response = attention.ask("encoder", accept=accept)
    assert response.headers["content-type"] == media_type
    assert response.headers["vary"] == "Accept"


def test_format_wins_over_accept(attention: RunningAttention) -> None:
    assert attention.ask("encoder", accept="image/png", format="json").headers["content-type"] == "application/json"


def test_a_client_that_takes_none_of_them_is_told_what_there_is(attention: RunningAttention) -> None:
    response = attention.ask("encoder", accept="application/pdf")
    assert response.status_code == 406
    assert response.json()["error_type"] == "not_acceptable"
    assert "application/json, application/x-npz, image/png, image/svg+xml, text/html" in response.json()["error"]


@pytest.mark.parametrize(
    ("accept", "name"),
    [
        ("", "json"),
        ("image/svg+xml;q=0.9, image/*;q=0.1", "svg"),
        ("*/*, application/json;q=0", "npz"),
        ("text/html;q=bad, image/png;q=0.1", "png"),
        ("IMAGE/PNG", "png"),
        (" , image/png", "png"),
    ],
)
def test_the_weights_of_accept(accept: str, name: str) -> None:
    assert choose_format(None, accept) == name


@pytest.mark.parametrize("accept", ["*/*;q=0", "audio/*", "html"])
def test_nothing_to_choose_from(accept: str) -> None:
    with pytest.raises(NotAcceptableError):
        choose_format(None, accept)


@pytest.mark.parametrize("format_name", ["png", "svg"])
def test_a_picture_that_is_too_large_is_refused_before_any_work(
    serve_attention: ServeAttention, format_name: str
) -> None:
    served = serve_attention(max_picture_pixels=10_000)
    assert "pixels" in served.error(format=format_name)
    assert "allowed: 10000" in served.error(format=format_name)
    assert served.engines["encoder_decoder"].requests == []
    assert served.ask(format="json").status_code == 200


@pytest.mark.parametrize(("wanted", "accept"), [("png", ""), ("svg", "*/*"), (None, "image/png")])
def test_without_matplotlib_pictures_are_refused_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, wanted: FormatName | None, accept: str
) -> None:
    monkeypatch.setattr("service.heads.attend.pictures.find_spec", lambda name: None)
    with pytest.raises(NotAcceptableError, match=r"install polyhead\[pictures\], or ask for json, npz or html"):
        choose_format(wanted, accept)
    assert choose_format("npz", "image/png") == "npz"
    assert choose_format(None, "*/*") == "json"
