// The view of all heads: a thumbnail for each head of each layer; choosing one opens it.
import { paint } from "../../js/colours.js";
import { element } from "../../js/dom.js";

const NAMES = 84; // pixels for the names of the layers, and the margins
const GAP = 5;

/** Draw all heads of the chosen kind into `container`; `open(layer, head)` is called for the one that is chosen. */
export function drawGrid(container, maps, open) {
  const { layers, heads } = maps.current;
  const grid = element("div", { class: "grid", role: "group", "aria-label": `All heads of the ${maps.kind} attention` });
  const room = (container.clientWidth - NAMES) / heads.length;
  const size = Math.floor(Math.max(34, Math.min(110, room - GAP)));
  grid.style.setProperty("grid-template-columns", `auto repeat(${heads.length}, ${size}px)`);
  const names = heads.map((head) => element("span", { class: "name", "aria-hidden": true }, `${head}`));
  grid.append(element("span", { class: "name", "aria-hidden": true }, "head"), ...names);
  for (const layer of layers) {
    grid.append(element("span", { class: "name", "aria-hidden": true }, `layer ${layer}`));
    for (const head of heads) {
      const isShown = maps.layer === layer && maps.head === head;
      const label = `Layer ${layer}, head ${head}`;
      grid.append(
        element(
          "button",
          { type: "button", "aria-label": label, title: label, "aria-current": isShown && "true", onclick: () => open(layer, head) },
          paint(maps.current.map(layer, head)),
        ),
      );
    }
  }
  container.replaceChildren(grid);
}
