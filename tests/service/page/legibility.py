"""Whether what a page writes can be read: the contrast of every text with what lies behind it, by WCAG 2.2."""

from __future__ import annotations

from playwright.sync_api import Page

LEAST = 4.5
"""Of text of any size: https://www.w3.org/TR/WCAG22/#contrast-minimum"""

_FAINT = """
async (least) => {
  // The browser mixes colours itself, in whatever notation they are: layers are painted onto one pixel, lowest first.
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const mix = (layers) => {
    for (const layer of ["white", ...layers]) {
      pen.fillStyle = layer;
      pen.fillRect(0, 0, 1, 1);
    }
    return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const luminance = (parts) => parts.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const isClear = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data[3] === 0;
  };
  const backgrounds = (node) =>
    node ? [...backgrounds(node.parentElement), getComputedStyle(node).backgroundColor] : [];

  // A picture that lies under a text of an SVG: the colour of the pixel under the text's middle.
  const pictures = new Map();
  const pixels = async (image) => {
    if (!pictures.has(image)) {
      const loaded = new Image();
      loaded.src = image.href.baseVal;
      await loaded.decode();
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [loaded.naturalWidth, loaded.naturalHeight];
      copy.getContext("2d", { willReadFrequently: true }).drawImage(loaded, 0, 0);
      pictures.set(image, copy);
    }
    return pictures.get(image);
  };
  const under = async (text) => {
    const { left, top, width, height } = text.getBoundingClientRect();
    const [x, y] = [left + width / 2, top + height / 2];
    const layers = [];
    for (const image of text.ownerSVGElement.querySelectorAll("image")) {
      const box = image.getBoundingClientRect();
      const [across, down] = [(x - box.left) / box.width, (y - box.top) / box.height];
      if (across < 0 || across >= 1 || down < 0 || down >= 1) continue;
      const copy = await pixels(image);
      const place = [Math.floor(across * copy.width), Math.floor(down * copy.height), 1, 1];
      layers.push(`rgb(${copy.getContext("2d").getImageData(...place).data.slice(0, 3).join(" ")})`);
    }
    return layers;
  };

  const faults = new Map();
  let count = 0;
  const check = async (node) => {
    if (!node.checkVisibility({ visibilityProperty: true }) || node.disabled || node.closest(":disabled")) return;
    const isDrawn = node instanceof SVGElement;
    const style = getComputedStyle(node);
    let ink = isDrawn ? style.fill : style.color;
    // The text of the backdrop cannot be seen: over it lies the same text, in a field of its own.
    if (isClear(ink)) ink = getComputedStyle(node.closest(".grow").querySelector("textarea")).color;
    const layers = [...backgrounds(isDrawn ? node.ownerSVGElement : node), ...(isDrawn ? await under(node) : [])];
    const [low, high] = [mix(layers), mix([...layers, ink])].map(luminance).sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    count += 1;
    if (contrast < least) faults.set(`${contrast.toFixed(2)}: ${node.outerHTML.slice(0, 120)}`, contrast);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const parents = new Set(document.querySelectorAll("input, select, textarea"));
  while (walker.nextNode()) if (walker.currentNode.data.trim()) parents.add(walker.currentNode.parentElement);
  for (const node of parents) if (!node.matches("script, style, noscript, option, .spare")) await check(node);
  return { count, faults: [...faults.keys()] };
}
"""


def expect_legible(page: Page, at_least: int) -> None:
    """No text that is shown is too faint; `at_least` so many are looked at, so that an empty page is not a good one."""
    found = page.evaluate(_FAINT, LEAST)
    assert not found["faults"], "\n".join(found["faults"])
    assert found["count"] >= at_least, found["count"]
