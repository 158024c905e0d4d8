// A matrix of values: cells with names along both sides, read by pointing or with the arrow keys.
import { inkOn, paint, ramp, shade } from "./colours.js";
import d3 from "./d3.js";
import { shorten } from "./dom.js";

const PIXELS_OF_A_CHARACTER = 7.6;
const SMALLEST_LABEL = 13;
const SMALLEST_WITH_VALUE = 32;
const LEGEND = 34;
const LEGEND_WIDTH = 224;

/**
 * Draw `matrix` into `container`: {map, lowest, rows, columns, describe(row, column), label, hasValues}. `say` is told
 * what is pointed at. With `hasValues` cells that are large enough hold their values.
 */
export function drawMatrix(container, matrix, say) {
  const { map, rows, columns, lowest } = matrix;
  const longest = (tokens) => Math.max(...tokens.map(({ text }) => text.length)) * PIXELS_OF_A_CHARACTER + 10;
  const width = container.clientWidth - 20;
  const left = Math.min(longest(rows), width * 0.34);
  const top = Math.min(longest(columns), 130);
  const size = Math.max(5, Math.min(matrix.hasValues ? 46 : 34, (width - left) / columns.length));
  const [right, bottom] = [left + size * columns.length, top + size * rows.length];
  const svg = d3.create("svg").attr("width", Math.max(right, LEGEND_WIDTH) + 2).attr("height", bottom + LEGEND + 2)
    .attr("tabindex", 0).attr("role", "application")
    .attr("aria-label", `${matrix.label}. A matrix of ${rows.length} rows and ${columns.length} columns: arrow keys go through the cells.`);
  svg.append("image").attr("class", "cells").attr("preserveAspectRatio", "none")
    .attr("x", left).attr("y", top).attr("width", right - left).attr("height", bottom - top)
    .attr("href", paint(map, lowest).toDataURL());
  svg.append("rect").attr("class", "frame").attr("x", left).attr("y", top).attr("width", right - left).attr("height", bottom - top);
  drawNames(svg, { matrix, left, top, size });
  drawLegend(svg, { map, lowest, left: Math.max(0, Math.min(left, right - LEGEND_WIDTH)), y: bottom + 12 });
  if (matrix.hasValues && size >= SMALLEST_WITH_VALUE) drawValues(svg, { map, lowest, left, top, size });

  const cursor = svg.append("rect").attr("class", "cursor").attr("width", size).attr("height", size).attr("visibility", "hidden");
  let cell = null;
  const point = (row, column) => {
    if (row < 0 || column < 0 || row >= rows.length || column >= columns.length) return;
    cell = { row, column };
    cursor.attr("visibility", "visible").attr("x", left + size * column).attr("y", top + size * row);
    svg.selectAll("text.row-name").classed("active", (place) => place === row);
    svg.selectAll("text.column-name").classed("active", (place) => place === column);
    say(matrix.describe(row, column));
  };
  svg.on("pointermove", (event) => {
    const [x, y] = d3.pointer(event);
    point(Math.floor((y - top) / size), Math.floor((x - left) / size));
  });
  svg.on("focus", () => cell ?? point(0, 0));
  svg.on("keydown", (event) => {
    const [down, across] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    point(cell.row + down, cell.column + across);
  });
  container.replaceChildren(svg.node());
}

/** The names of rows and columns; where the cells are small, of every so manieth. */
function drawNames(svg, { matrix, left, top, size }) {
  const step = Math.ceil(SMALLEST_LABEL / size);
  const some = (tokens) => d3.range(0, tokens.length, step);
  const name = (tokens, room) => (place) => shorten(tokens[place].text, Math.floor(room / PIXELS_OF_A_CHARACTER));
  const kind = (tokens, side) => (place) => `${side}${tokens[place].special ? " special" : ""}`;
  svg.append("g").selectAll("text").data(some(matrix.rows)).join("text").attr("class", kind(matrix.rows, "row-name"))
    .attr("text-anchor", "end").attr("dy", "0.35em").attr("x", left - 6).attr("y", (place) => top + size * (place + 0.5))
    .text(name(matrix.rows, left - 6));
  svg.append("g").selectAll("text").data(some(matrix.columns)).join("text").attr("class", kind(matrix.columns, "column-name"))
    .attr("dy", "0.35em").attr("transform", (place) => `translate(${left + size * (place + 0.5)},${top - 6}) rotate(-90)`)
    .text(name(matrix.columns, top - 6));
}

/** The values themselves, in letters that stand out from their cells. */
function drawValues(svg, { map, lowest, left, top, size }) {
  const colours = ramp();
  svg.append("g").attr("aria-hidden", "true").selectAll("text").data(map.values).join("text")
    .attr("class", "value").style("fill", (value) => inkOn(colours[shade(value, map, lowest)]))
    .attr("x", (_, cell) => left + size * ((cell % map.numColumns) + 0.5))
    .attr("y", (_, cell) => top + size * (Math.floor(cell / map.numColumns) + 0.5))
    .attr("dy", "0.35em").attr("text-anchor", "middle").text((value) => value.toFixed(2));
}

/** Which colour is which value. */
function drawLegend(svg, { map, lowest, left, y }) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [256, 1];
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(256, 1);
  ramp().forEach((colour, step) => image.data.set([...colour, 255], 4 * step));
  pen.putImageData(image, 0, 0);
  svg.append("image").attr("x", left + 44).attr("y", y).attr("width", 136).attr("height", 12)
    .attr("preserveAspectRatio", "none").attr("href", canvas.toDataURL());
  for (const [value, x] of [[lowest, left], [map.largest, left + 190]]) {
    svg.append("text").attr("class", "heading").attr("x", x).attr("y", y + 10).text(value.toFixed(2));
  }
}
