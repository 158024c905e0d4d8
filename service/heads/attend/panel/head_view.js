// The view of lines: two columns of tokens, and a line from each one to what it looks at, as strong as the weight.
import d3 from "../../js/d3.js";
import { shorten } from "../../js/dom.js";
import { rove } from "../../js/roving.js";

const ROW = 24;
const TOP = 20;
const PIXELS_OF_A_CHARACTER = 7.6;
const FAINTEST = 0.03;
const MOST_LINES = 4000;

/** Draw a matrix of `AttentionMaps` into `container`; `say` is told what is pointed at. */
export function drawHeads(container, matrix, say) {
  const { map, rows, columns } = matrix;
  const width = Math.min(760, container.clientWidth - 20);
  const side = Math.min(190, width * 0.34);
  const height = TOP + ROW * Math.max(rows.length, columns.length) + 4;
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("role", "group")
    .attr("aria-label", `${matrix.label}: a line from each token at the left to those at the right that it looks at. Arrow keys go through the tokens.`);
  const y = (place) => TOP + ROW * (place + 0.5);
  const link = d3.linkHorizontal();
  const lines = svg.append("g").attr("aria-hidden", "true").selectAll("path").data(strongest(map)).join("path")
    .attr("class", "line")
    .attr("d", ({ row, column }) => link({ source: [side + 6, y(row)], target: [width - side - 6, y(column)] }))
    .attr("stroke-width", ({ share }) => 0.5 + 4.5 * share)
    .attr("stroke-opacity", ({ share }) => 0.1 + 0.9 * share);
  const focusOn = (active) => {
    lines.classed("faded", (line) => active !== null && line[active.side] !== active.place);
    say(active === null ? "" : describe(matrix, active));
  };
  const sides = [
    { side: "row", tokens: rows, x: side, anchor: "end", heading: matrix.headings[0] },
    { side: "column", tokens: columns, x: width - side, anchor: "start", heading: matrix.headings[1] },
  ];
  for (const { side: name, tokens, x, anchor, heading } of sides) {
    svg.append("text").attr("class", "heading").attr("x", x).attr("y", 12).attr("text-anchor", anchor).text(heading);
    svg.append("g").selectAll("text").data(tokens).join("text")
      .attr("class", ({ special }) => (special ? "token special" : "token"))
      .attr("x", x).attr("y", (_, place) => y(place)).attr("dy", "0.35em").attr("text-anchor", anchor)
      .attr("role", "img").attr("aria-label", (token, place) => describe(matrix, { side: name, place }))
      .text(({ text }) => shorten(text, Math.floor(side / PIXELS_OF_A_CHARACTER)))
      .on("pointerenter focus", function enter() {
        d3.select(this).classed("active", true);
        focusOn({ side: name, place: tokens.indexOf(d3.select(this).datum()) });
      })
      .on("pointerleave blur", function leave() {
        d3.select(this).classed("active", false);
        focusOn(null);
      });
  }
  container.replaceChildren(svg.node());
  rove(container, "text.token");
}

/** The lines worth drawing: not too faint, and not so many that the browser stands still. */
function strongest(map) {
  const lines = [];
  map.values.forEach((value, cell) => {
    const share = value / map.largest;
    if (share >= FAINTEST) lines.push({ row: Math.floor(cell / map.numColumns), column: cell % map.numColumns, share });
  });
  return lines.sort((a, b) => a.share - b.share).slice(-MOST_LINES);
}

/** What a token looks at most, or what looks at it most, with the weights. */
function describe({ map, rows, columns }, { side, place }) {
  const isRow = side === "row";
  const value = (other) => (isRow ? map.at(place, other) : map.at(other, place));
  const others = isRow ? columns : rows;
  const best = d3.range(others.length).sort((a, b) => value(b) - value(a)).slice(0, 4);
  const list = best.map((other) => `${others[other].text} ${value(other).toFixed(2)}`).join(", ");
  return isRow ? `${rows[place].text} → ${list}` : `${columns[place].text} ← ${list}`;
}
