// The panel Embed: lines of text, how near they are to one another, and a map of them.
import { postJson, wasAborted } from "../../js/api.js";
import { byId, element, setOptions, shorten, submitOnControlEnter } from "../../js/dom.js";
import { drawMatrix } from "../../js/matrix.js";
import { clearError, HOW, missing, showError } from "../../js/messages.js";
import { project } from "./pca.js";
import { drawMap } from "./scatter.js";

const MOST_LINES = 200;
const TOLD = 46; // characters of each of two texts, for which a readout has room
const EXAMPLE = [
  "The train leaves at nine o'clock.", "Der Zug fährt um neun Uhr ab.", "When does the bus arrive?",
  "I would like a cup of coffee.", "Ich möchte gern einen Kaffee.", "Is there any tea left?",
  "My sister lives in Berlin.", "Meine Schwester wohnt in Berlin.",
].join("\n");

export function create(root, context) {
  const models = context.models("embed");
  if (!models.length) {
    missing(root, "that embeds is loaded", HOW.model);
    return {};
  }
  return new EmbedPanel(context, models);
}

class EmbedPanel {
  constructor(context, models) {
    this.models = models;
    this.batchSize = context.info.limits.max_client_batch_size;
    this.form = byId("embed-form");
    this.fields = this.form.elements;
    this.errorPlace = byId("embed-error");
    setOptions(this.fields.model, models.map(({ name }) => [name, name]));
    this.fields.model.closest("label").hidden = models.length < 2;
    this.fields.model.addEventListener("change", () => this.offerPrompts());
    this.fields.inputs.value = EXAMPLE;
    this.offerPrompts();
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.compare();
    });
    submitOnControlEnter(this.form);
    addEventListener("themechange", () => this.draw());
    new ResizeObserver(() => byId("cosine").clientWidth !== this.width && this.draw()).observe(byId("cosine"));
  }

  show() {
    if (!this.result) this.compare();
  }

  get model() {
    return this.models.find(({ name }) => name === this.fields.model.value);
  }

  offerPrompts() {
    const { prompts, default_prompt_name: first } = this.model;
    const names = Object.keys(prompts);
    byId("prompt-label").hidden = names.length === 0;
    const entries = names.map((name) => [name, `${name} (“${shorten(prompts[name], 20)}”)`]);
    setOptions(this.fields.prompt_name, first ? entries : [["", "none"], ...entries], first ?? "");
  }

  async compare() {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    clearError(this.form, this.errorPlace);
    const texts = this.fields.inputs.value.split("\n").map((line) => line.trim()).filter(Boolean);
    try {
      if (!texts.length) throw new Error("There is no text: write one line at least.");
      if (texts.length > MOST_LINES) throw new Error(`There are ${texts.length} lines; at most ${MOST_LINES} can be shown.`);
      byId("embed-status").textContent = "Embedding …";
      const vectors = await this.embed(texts, controller.signal);
      if (controller !== this.controller) return;
      this.result = { texts, vectors };
      byId("embed-status").textContent = `${texts.length} texts, ${vectors[0].length} dimensions`;
      byId("embed-result").hidden = false;
      this.draw();
    } catch (error) {
      if (wasAborted(error)) return;
      byId("embed-status").textContent = "";
      byId("embed-result").hidden = true;
      showError(this.form, this.errorPlace, error);
    }
  }

  /** Vectors of the length 1, asked for in batches that the server takes. */
  async embed(texts, signal) {
    const vectors = [];
    for (let start = 0; start < texts.length; start += this.batchSize) {
      const body = {
        inputs: texts.slice(start, start + this.batchSize),
        model: this.model.name,
        prompt_name: this.fields.prompt_name.value || undefined,
      };
      vectors.push(...(await postJson("embed", body, signal)));
    }
    return vectors;
  }

  draw() {
    this.width = byId("cosine").clientWidth;
    if (!this.result || !this.width) return;
    const { texts, vectors } = this.result;
    const say = (place) => (text) => (byId(place).textContent = text);
    byId("cosine-readout").textContent = "Point at a cell, or go through them with the arrow keys.";
    byId("map-readout").textContent = "Point at a text, or go through them with the arrow keys.";
    drawMatrix(byId("cosine"), cosines(texts, vectors), say("cosine-readout"));
    if (texts.length < 2) {
      byId("map").replaceChildren(element("p", {}, "A map needs two texts at least."));
      return;
    }
    drawMap(byId("map"), texts, project(vectors), say("map-readout"));
  }
}

/** The cosines of all pairs, as a matrix to draw. Vectors have the length 1, so it is their product. */
function cosines(texts, vectors) {
  const dot = (one, other) => one.reduce((sum, value, place) => sum + value * other[place], 0);
  const count = texts.length;
  const values = Float32Array.from({ length: count * count }, (_, cell) => dot(vectors[Math.floor(cell / count)], vectors[cell % count]));
  const map = { values, numRows: count, numColumns: count, largest: 1, at: (row, column) => values[row * count + column] };
  const names = texts.map((text, place) => ({ text: `${place + 1} ${text}`, special: false }));
  return {
    map,
    lowest: values.reduce((lowest, value) => Math.min(lowest, value), 0),
    rows: names,
    columns: names.map((_, place) => ({ text: `${place + 1}`, special: false })),
    describe: (row, column) => `${map.at(row, column).toFixed(3)}: “${shorten(texts[row], TOLD)}” and “${shorten(texts[column], TOLD)}”`,
    label: "Cosine of each pair of texts",
    hasValues: true,
  };
}
