// A map of texts: a point for each, near to those that mean alike.
import d3 from "../../js/d3.js";
import { shorten } from "../../js/dom.js";
import { rove } from "../../js/roving.js";

const MARGIN = 24;
const LINE = 15;
const PIXELS_OF_A_CHARACTER = 7.6;
const TOLD = 42; // characters of each of two texts, for which a readout has room

/** Draw `points` with the names of `texts`; `say` is told what is pointed at. */
export function drawMap(container, texts, { points, shares }, say) {
  const width = container.clientWidth - 20;
  const height = Math.max(280, Math.min(width * 0.8, 520));
  const [x, y] = scales(points, width, height);
  const svg = d3.create("svg").attr("width", width).attr("height", height + LINE).attr("role", "group")
    .attr("aria-label", `A map of ${texts.length} texts. Arrow keys go through them.`);
  const places = points.map(([first, second]) => [x(first), y(second)]);
  const isLeft = (place) => places[place][0] < width / 2;
  const length = Math.max(8, Math.floor((width / 2 - MARGIN) / PIXELS_OF_A_CHARACTER));
  const names = texts.map((text, place) => shorten(`${place + 1} ${text}`, length));
  const heights = spread(places, names, isLeft);
  const labels = svg.append("g").attr("aria-hidden", "true").selectAll("text").data(texts).join("text")
    .attr("x", (_, place) => places[place][0] + (isLeft(place) ? 8 : -8)).attr("y", (_, place) => heights[place])
    .attr("dy", "0.35em").attr("text-anchor", (_, place) => (isLeft(place) ? "start" : "end"))
    .text((_, place) => names[place]);
  const nearest = (place) => {
    const distance = (other) => Math.hypot(points[place][0] - points[other][0], points[place][1] - points[other][1]);
    return d3.least(d3.range(points.length).filter((other) => other !== place), distance);
  };
  const describe = (place) => `“${shorten(texts[place], TOLD)}”, nearest on the map: “${shorten(texts[nearest(place)], TOLD)}”`;
  svg.append("g").selectAll("circle").data(d3.range(texts.length)).join("circle").attr("class", "point")
    .attr("cx", (place) => places[place][0]).attr("cy", (place) => places[place][1]).attr("r", 5)
    .attr("role", "img").attr("aria-label", describe)
    .on("pointerenter focus", (_, place) => {
      labels.classed("active", (__, other) => other === place);
      say(describe(place));
    })
    .on("pointerleave blur", () => {
      labels.classed("active", false);
    });
  const percent = shares.map((share) => `${Math.round(100 * share)} %`);
  svg.append("text").attr("class", "heading").attr("x", 2).attr("y", height + LINE - 4)
    .text(`Principal components: ${percent.join(" and ")}`);
  container.replaceChildren(svg.node());
  rove(container, "circle.point");
}

/** Scales with the same unit on both axes, so that distances can be compared. */
function scales(points, width, height) {
  const extents = [0, 1].map((axis) => d3.extent(points, (point) => point[axis]));
  const rooms = [width - 2 * MARGIN, height - 2 * MARGIN];
  const unit = Math.min(...extents.map(([low, high], axis) => rooms[axis] / (high - low || 1)));
  const centre = extents.map(([low, high]) => (low + high) / 2);
  return [
    (value) => width / 2 + (value - centre[0]) * unit,
    (value) => height / 2 - (value - centre[1]) * unit,
  ];
}

/** Heights of the labels: from the top, each moved down until it covers none of those above. */
function spread(places, names, isLeft) {
  const heights = places.map(([, y]) => y);
  const done = [];
  for (const place of d3.sort(d3.range(places.length), (one) => heights[one])) {
    const length = names[place].length * PIXELS_OF_A_CHARACTER;
    const start = isLeft(place) ? places[place][0] : places[place][0] - length;
    const beside = done.filter((other) => start < other.end && other.start < start + length);
    while (beside.some(({ height }) => Math.abs(height - heights[place]) < LINE)) heights[place] += LINE / 3;
    done.push({ start, end: start + length, height: heights[place] });
  }
  return heights;
}
