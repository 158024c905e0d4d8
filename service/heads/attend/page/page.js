
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const AXES = { encoder: ["source", "source"], decoder: ["target", "target"], cross: ["target", "source"] };
  const SVG = "http://www.w3.org/2000/svg";
  const HINT = "Queries at the left or in rows, keys at the right or in columns. Point at a token or a cell, or reach it with the keyboard.";
  const ROW = 24, WIDTH = 640, SMALLEST = 0.02;

  // Weights travel as whole numbers from 0 to 65535 in base64, which a browser reads much faster than a list.
  for (const group of [data.maps, data.norms || {}]) {
    for (const maps of Object.values(group)) {
      const bytes = Uint8Array.from(atob(maps.data), (character) => character.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      maps.weights = Float32Array.from({ length: bytes.length / 2 }, (_, place) => (view.getUint16(2 * place, true) / 65535) * maps.scale);
    }
  }

  const state = { kind: Object.keys(data.maps)[0], layer: 0, head: 0, values: "maps", view: "lines", row: 0, column: 0 };

  function option(value, label) {
    const element = document.createElement("option");
    element.value = value;
    element.textContent = label;
    return element;
  }

  function fill(select, entries, chosen) {
    select.replaceChildren(...entries.map(([value, label]) => option(value, label)));
    select.value = String(chosen);
    select.closest("label").hidden = entries.length < 2;
  }

  function current() {
    const maps = data[state.values][state.kind];
    const [, numHeads, numRows, numColumns] = maps.shape;
    const first = (state.layer * numHeads + state.head) * numRows * numColumns;
    const [rows, columns] = AXES[state.kind].map((axis) => data[axis].tokens);
    const weight = (row, column) => maps.weights[first + row * numColumns + column];
    let largest = 0;
    for (let place = first; place < first + numRows * numColumns; place += 1) largest = Math.max(largest, maps.weights[place]);
    return { rows, columns, weight, largest: largest || 1 };
  }

  function label(token) {
    return token.text.trim() === "" ? "\u2423" : token.text;
  }

  function describe(row, column) {
    const { rows, columns, weight } = current();
    const predicted = state.kind !== "encoder" && rows[row].predicts ? ` (next: ${rows[row].predicts.text})` : "";
    return `${label(rows[row])}${predicted} \u2192 ${label(columns[column])}: ${weight(row, column).toFixed(4)}`;
  }

  function element(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function drawLines() {
    const { rows, columns, weight, largest } = current();
    const height = ROW * (Math.max(rows.length, columns.length) + 1);
    const svg = element("svg", { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": "Lines from each query at the left to the keys that it attends to, at the right" });
    const lines = [];
    rows.forEach((_, row) => columns.forEach((__, column) => {
      const share = weight(row, column) / largest;
      if (share < SMALLEST) return;
      const line = element("line", { x1: 190, y1: ROW * (row + 0.8), x2: WIDTH - 190, y2: ROW * (column + 0.8), "stroke-width": (0.5 + 3.5 * share).toFixed(2), "stroke-opacity": (0.08 + 0.92 * share).toFixed(3) });
      lines.push({ line, row, column });
      svg.append(line);
    }));
    const sides = [[rows, "row", 182, "end"], [columns, "column", WIDTH - 182, "start"]];
    for (const [tokens, side, x, anchor] of sides) {
      tokens.forEach((token, number) => {
        const text = element("text", { x, y: ROW * (number + 1), "text-anchor": anchor, tabindex: 0, class: token.special ? "special" : "" }, label(token));
        const choose = (chosen) => {
          for (const entry of lines) entry.line.classList.toggle("faded", chosen && entry[side] !== number);
          text.classList.toggle("active", chosen);
          byId("readout").textContent = chosen ? strongest(side, number) : HINT;
        };
        text.addEventListener("mouseenter", () => choose(true));
        text.addEventListener("mouseleave", () => choose(false));
        text.addEventListener("focus", () => choose(true));
        text.addEventListener("blur", () => choose(false));
        svg.append(text);
      });
    }
    byId("lines").replaceChildren(svg);
  }

  function strongest(side, number) {
    const { rows, columns, weight } = current();
    const others = side === "row" ? columns : rows;
    const value = (other) => (side === "row" ? weight(number, other) : weight(other, number));
    const best = others.map((_, other) => other).sort((a, b) => value(b) - value(a)).slice(0, 3);
    return best.map((other) => (side === "row" ? describe(number, other) : describe(other, number))).join("; ");
  }

  function colour(share) {
    // From dark blue over green to yellow, each lighter than the one before.
    const stops = [[48, 18, 89], [49, 104, 142], [53, 183, 121], [253, 231, 37]];
    const place = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
    const low = Math.floor(place);
    const mixed = stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (place - low)));
    return `rgb(${mixed.join(",")})`;
  }

  const MARGIN = 120;

  function cellSize() {
    const { rows, columns } = current();
    return Math.max(4, Math.min(28, Math.floor(900 / Math.max(rows.length, columns.length, 1))));
  }

  function drawMatrix() {
    const { rows, columns, weight, largest } = current();
    const canvas = byId("cells"), size = cellSize(), scale = window.devicePixelRatio || 1;
    const width = MARGIN + size * columns.length + 8, height = MARGIN + size * rows.length + 8;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.setProperty("width", `${width}px`);
    canvas.style.setProperty("height", `${height}px`);
    canvas.setAttribute("aria-label", "Matrix of attention weights: rows are queries, columns are keys; arrow keys move, the value is read out");
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = `${Math.min(13, size)}px system-ui, sans-serif`;
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    rows.forEach((token, row) => pen.fillText(label(token), MARGIN - 6, MARGIN + size * (row + 0.5), MARGIN - 10));
    pen.textAlign = "left";
    columns.forEach((token, column) => {
      pen.save();
      pen.translate(MARGIN + size * (column + 0.5), MARGIN - 6);
      pen.rotate(-Math.PI / 2);
      pen.fillText(label(token), 0, 0, MARGIN - 10);
      pen.restore();
    });
    rows.forEach((_, row) => columns.forEach((__, column) => {
      pen.fillStyle = colour(weight(row, column) / largest);
      pen.fillRect(MARGIN + size * column, MARGIN + size * row, size - (size > 8 ? 1 : 0), size - (size > 8 ? 1 : 0));
    }));
    pen.strokeStyle = "#ff3b30";
    pen.strokeRect(MARGIN + size * state.column, MARGIN + size * state.row, size, size);
  }

  function choose(row, column) {
    const { rows, columns } = current();
    if (row < 0 || column < 0 || row >= rows.length || column >= columns.length) return;
    if (row !== state.row || column !== state.column) {
      Object.assign(state, { row, column });
      drawMatrix();
    }
    byId("readout").textContent = describe(row, column);
  }

  function draw() {
    const { rows, columns } = current();
    state.row = Math.min(state.row, rows.length - 1);
    state.column = Math.min(state.column, columns.length - 1);
    byId("readout").textContent = HINT;
    byId("lines").hidden = state.view !== "lines";
    byId("matrix").hidden = state.view !== "matrix";
    if (state.view === "lines") drawLines(); else drawMatrix();
  }

  function offer() {
    const maps = data.maps[state.kind];
    state.layer = Math.min(state.layer, maps.layers.length - 1);
    state.head = Math.min(state.head, maps.shape[1] - 1);
    fill(byId("kind"), Object.keys(data.maps).map((kind) => [kind, kind]), state.kind);
    fill(byId("layer"), maps.layers.map((layer, place) => [place, layer]), state.layer);
    fill(byId("head"), maps.heads === null ? [[0, data.aggregate]] : maps.heads.map((head, place) => [place, head]), state.head);
    fill(byId("values"), data.norms ? [["maps", "weights"], ["norms", "norms"]] : [["maps", "weights"]], state.values);
  }

  for (const name of ["kind", "layer", "head", "values", "view"]) {
    byId(name).addEventListener("change", (event) => {
      const value = event.target.value;
      state[name] = name === "layer" || name === "head" ? Number(value) : value;
      offer();
      draw();
    });
  }
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("cells").addEventListener("mousemove", (event) => {
    choose(Math.floor((event.offsetY - MARGIN) / cellSize()), Math.floor((event.offsetX - MARGIN) / cellSize()));
  });
  byId("cells").addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(state.row + step[0], state.column + step[1]);
  });

  byId("model").textContent = data.model;
  byId("text").textContent = data.text || "";
  if (data.alignment) {
    byId("alignment").hidden = false;
    const words = (name, place) => data.alignment[name][place].text;
    byId("links").replaceChildren(...data.alignment.links.split(" ").filter(Boolean).map((link) => {
      const [source, target] = link.split("-").map(Number);
      const item = document.createElement("li");
      item.textContent = `${words("source_words", source)} \u2013 ${words("target_words", target)}`;
      return item;
    }));
  }
  offer();
  draw();
})();
