// Colours of values from 0 to 1: from the page's own background to its accent, in both themes.
import d3 from "./d3.js";

const RAMPS = {
  light: d3.interpolateRgbBasis(["#ffffff", "#b9d6f5", "#4a90d9", "#0b4a96", "#06264f"]),
  dark: d3.interpolateRgbBasis(["#15181c", "#1c3a5e", "#2f6fb5", "#7db7ff", "#f0f7ff"]),
};

/** Whether the page is dark now, by the user's choice or the system's. */
export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** A canvas with one pixel for each cell of `map`; `lowest` has the colour of nothing, the largest that of all. */
export function paint(map, lowest = 0, canvas = document.createElement("canvas")) {
  canvas.width = map.numColumns;
  canvas.height = map.numRows;
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(map.numColumns, map.numRows);
  const colours = ramp();
  map.values.forEach((value, cell) => {
    const [red, green, blue] = colours[shade(value, map, lowest)];
    image.data.set([red, green, blue, 255], 4 * cell);
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}

/** Which of the 256 colours a value of `map` has. */
export function shade(value, map, lowest = 0) {
  return Math.max(0, Math.min(255, Math.round(((value - lowest) * 255) / (map.largest - lowest || 1))));
}

/** Black or white, whichever has more contrast with a colour: no less than 4.58 with any. https://www.w3.org/TR/WCAG22/ */
export function inkOn(colour) {
  const luminance = d3.sum(colour, (part, place) => {
    const share = part / 255;
    return [0.2126, 0.7152, 0.0722][place] * (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  });
  return (luminance + 0.05) ** 2 > 1.05 * 0.05 ? "#000000" : "#ffffff";
}

/** The 256 colours of the theme, as numbers. */
export function ramp() {
  const interpolate = RAMPS[isDark() ? "dark" : "light"];
  return Array.from({ length: 256 }, (_, step) => {
    const { r, g, b } = d3.rgb(interpolate(step / 255));
    return [r, g, b];
  });
}
