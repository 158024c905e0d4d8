// The panel Status: what is loaded and what it does now, from /info, /health and /metrics, while it is looked at.
import { getJson, request } from "../../js/api.js";
import d3 from "../../js/d3.js";
import { byId, element } from "../../js/dom.js";
import { parseMetrics, sum } from "./prometheus.js";

const SECONDS_BETWEEN = 2;
const HEALTH_EVERY = 5; // of these: a health check runs every model
const POINTS = 60;

export function create(root, context) {
  return new StatusPanel(context);
}

class StatusPanel {
  constructor(context) {
    this.info = context.info;
    this.health = {};
    this.rounds = 0;
    this.before = null;
    this.history = new Map(this.info.models.map(({ name }) => [name, []]));
    this.isShown = false;
    document.addEventListener("visibilitychange", () => this.wake());
  }

  show() {
    this.isShown = true;
    return this.wake();
  }

  hide() {
    this.isShown = false;
    clearTimeout(this.timer);
  }

  async wake() {
    clearTimeout(this.timer);
    if (!this.isShown || document.visibilityState === "hidden") return;
    await this.refresh();
    clearTimeout(this.timer);
    if (this.isShown) this.timer = setTimeout(() => this.wake(), 1000 * SECONDS_BETWEEN);
  }

  async refresh() {
    const place = byId("status-error");
    try {
      if (this.rounds % HEALTH_EVERY === 0) await this.check();
      this.rounds += 1;
      const text = await (await request("metrics")).text();
      this.draw(parseMetrics(text));
      place.hidden = true;
    } catch (error) {
      place.textContent = error.message;
      place.hidden = false;
    }
  }

  /** Whether the models answer. A server that says 503 is one that tells which does not, so its words are shown. */
  async check() {
    this.info = await getJson("info");
    try {
      this.health = (await getJson("health?details=1")).models;
    } catch (error) {
      this.health = Object.fromEntries(this.info.models.map(({ name }) => [name, error.message]));
    }
  }

  draw(samples) {
    const now = performance.now() / 1000;
    const models = this.info.models;
    byId("status-summary").textContent =
      `${models.length} ${models.length === 1 ? "model" : "models"}, version ${this.info.version}; up to ` +
      `${this.info.limits.max_waiting_requests} requests may wait for each.`;
    byId("status-models").replaceChildren(...models.map((model) => this.card(model, samples, now)));
    byId("status-routes").tBodies[0].replaceChildren(...routes(samples));
    this.before = { samples, now };
  }

  card(model, samples, now) {
    const labels = { model: model.name };
    const read = (name) => sum(samples, `polyhead_${name}`, labels);
    const rate = this.rate(model.name, samples, now);
    const history = this.history.get(model.name) ?? [];
    if (rate !== null) history.push(rate);
    history.splice(0, history.length - POINTS);
    const rows = [
      ["Task", model.task],
      ["Device, precision", `${model.device}, ${model.precision}`],
      ["Health", this.health[model.name] ?? "not asked yet"],
      ["Attention maps", model.attention.join(", ") || "not in the bundle"],
      ["Waiting", `${read("waiting_requests")} requests, ${read("waiting_tokens")} tokens`],
      ...(read("max_rows") ? [["Rows in use", `${read("active_rows")} of ${read("max_rows")}`]] : []),
      ["Throughput", rate === null ? "measuring …" : `${rate.toFixed(0)} tokens/s`],
    ];
    return element(
      "section",
      { class: "card", "aria-label": model.name },
      element("h2", {}, model.name),
      element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
      sparkline(history),
    );
  }

  /** Tokens read and written in a second since the last look; null before the second one. */
  rate(name, samples, now) {
    if (!this.before) return null;
    const done = (from) =>
      sum(from, "polyhead_generated_tokens_total", { model: name }) +
      sum(from, "polyhead_computed_tokens_total", { model: name, phase: "encode" }) -
      sum(from, "polyhead_padding_tokens_total", { model: name, phase: "encode" }) +
      sum(from, "polyhead_prompt_tokens_total", { model: name });
    return Math.max(0, done(samples) - done(this.before.samples)) / (now - this.before.now);
  }
}

/** The last two minutes of throughput. */
function sparkline(history) {
  const x = d3.scaleLinear([0, POINTS - 1], [0, 100]);
  const y = d3.scaleLinear([0, Math.max(1, d3.max(history) ?? 0)], [29, 1]);
  const line = d3.line((_, place) => x(place + POINTS - history.length), y);
  const svg = d3.create("svg").attr("viewBox", "0 0 100 30").attr("preserveAspectRatio", "none").attr("aria-hidden", "true");
  svg.append("path").attr("d", line(history));
  return svg.node();
}

function routes(samples) {
  const counted = d3.rollup(samples.get("polyhead_requests_total") ?? [], (list) => ({
    all: d3.sum(list, ({ value }) => value),
    errors: d3.sum(list, ({ labels, value }) => (Number(labels.status) >= 400 ? value : 0)),
  }), ({ labels }) => labels.route);
  return d3.sort(counted, ([, { all }]) => -all).map(([route, { all, errors }]) => {
    const seconds = sum(samples, "polyhead_request_seconds_sum", { route }) / sum(samples, "polyhead_request_seconds_count", { route });
    const cells = [all, errors, `${(1000 * seconds).toFixed(1)} ms`].map((text) => element("td", {}, `${text}`));
    return element("tr", {}, element("th", { scope: "row" }, route === "unmatched" ? "files and unknown paths" : route), ...cells);
  });
}
