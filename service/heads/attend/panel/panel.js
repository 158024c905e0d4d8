// The panel Attention: ask for all maps of one input, and show them in three views.
import { postJson, wasAborted } from "../../js/api.js";
import { AttentionForm } from "./attention_form.js";
import { AttentionMaps } from "./attention_maps.js";
import { byId, save, setOptions } from "../../js/dom.js";
import { drawHeads } from "./head_view.js";
import { drawMatrix } from "../../js/matrix.js";
import { clearError, HOW, missing, showError } from "../../js/messages.js";
import { drawGrid } from "./model_view.js";

const HINTS = {
  lines: "Point at a token, or go through them with the arrow keys, to see its lines alone.",
  grid: "Choose a head to open it.",
  matrix: "Point at a cell, or go through them with the arrow keys.",
};
const PICKERS = ["kind", "layer", "head", "names"];

export function create(root, context) {
  if (!context.info.models.some((model) => model.attention.length)) {
    missing(root, "with attention maps is loaded", HOW.attention);
    return {};
  }
  return new AttentionPanel(context);
}

class AttentionPanel {
  constructor(context) {
    this.form = new AttentionForm(context);
    this.errorPlace = byId("attention-error");
    this.place = byId("attention-view");
    this.readout = byId("attention-readout");
    this.maps = null;
    this.view = "lines";
    this.form.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.look();
    });
    for (const radio of document.getElementsByName("view")) radio.addEventListener("change", () => this.choose({ view: radio.value }));
    for (const name of PICKERS) {
      byId(`pick-${name}`).addEventListener("change", ({ target }) => this.choose({ [name]: target.value }));
    }
    for (const button of document.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () => this.download(button.dataset.format));
    }
    addEventListener("themechange", () => this.draw());
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  /** `payload`: a translation to look at, {text, source, target, targetText}. */
  show(payload) {
    if (payload) this.form.fill(payload);
    return payload || !this.maps ? this.look() : this.resize();
  }

  async look() {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    clearError(this.form.element, this.errorPlace);
    byId("attention-status").textContent = "Looking …";
    try {
      const request = this.form.request();
      const answer = await postJson("attention", { ...request, kind: "all", format: "base64-float32" }, controller.signal);
      if (controller !== this.controller) return;
      this.request = request;
      this.maps = new AttentionMaps(answer, this.maps);
      byId("attention-status").textContent = "";
      byId("attention-text").textContent = this.form.describe(answer);
      byId("attention-result").hidden = false;
      this.draw();
    } catch (error) {
      if (wasAborted(error)) return;
      byId("attention-status").textContent = "";
      byId("attention-result").hidden = true;
      showError(this.form.element, this.errorPlace, error);
    }
  }

  choose({ view = this.view, ...choice }) {
    this.view = view;
    this.maps.choose(choice);
    this.draw();
  }

  /** Draw again, but only when the width has changed: drawing changes the height. */
  resize() {
    if (this.place.clientWidth && this.place.clientWidth !== this.width) this.draw();
  }

  draw() {
    this.width = this.place.clientWidth;
    if (!this.maps || !this.width) return;
    this.offer();
    const say = (text) => (this.readout.textContent = text || HINTS[this.view]);
    say("");
    if (this.view === "grid") {
      drawGrid(this.place, this.maps, (layer, head) => {
        document.querySelector('[name="view"][value="lines"]').checked = true;
        this.choose({ view: "lines", layer, head });
        byId("pick-head").focus();
      });
    } else if (this.view === "matrix") drawMatrix(this.place, this.maps.matrix(), say);
    else drawHeads(this.place, this.maps.matrix(), say);
  }

  offer() {
    const { maps } = this;
    const inGrid = this.view === "grid";
    setOptions(byId("pick-kind"), maps.kinds.map((kind) => [kind, kind]), maps.kind);
    setOptions(byId("pick-layer"), maps.current.layers.map((layer) => [layer, layer]), maps.layer);
    const heads = maps.current.heads.map((head) => [head, head]);
    setOptions(byId("pick-head"), [...heads, ["mean", "mean of all"], ["max", "largest of all"]], maps.head);
    byId("pick-names").value = maps.names;
    byId("pick-names-label").hidden = inGrid || !maps.canWrite;
    for (const name of ["layer", "head"]) byId(`pick-${name}`).closest("label").hidden = inGrid;
    byId("pick-kind").closest("label").hidden = maps.kinds.length < 2;
  }

  /** The server draws and writes: of the map that is shown, or in the view of all heads of all of its kind. */
  async download(format) {
    byId("download-error").textContent = "";
    const { kind, layer, head } = this.maps;
    const body = { ...this.request, kind, format, alignment: undefined };
    if (this.view !== "grid") {
      body.layers = [layer];
      if (head === "mean" || head === "max") body.aggregate = head;
      else body.heads = [head];
    }
    try {
      save(await (await this.form.fetch(body)).blob(), `attention.${format}`);
    } catch (error) {
      byId("download-error").textContent = error.message;
    }
  }
}
