// The panel Generate: a prompt, its continuation as it comes, and how likely each token was.
import { request, ServerError, wasAborted } from "../../js/api.js";
import { byId, element, numberIn, setOptions, submitOnControlEnter, visible } from "../../js/dom.js";
import { events } from "../../js/event_stream.js";
import { clearError, HOW, missing, showError } from "../../js/messages.js";
import { rove } from "../../js/roving.js";

const EXAMPLE = "Once upon a time there was a little girl";
const HINT = "Point at a token, or go through them with the arrow keys.";
const MOST_OTHERS = 5;
const OPTIONAL = ["top_p", "top_k", "repetition_penalty", "seed"];
const ENDINGS = { length: "the length asked for", eos_token: "the model ended it", stop_sequence: "the stop text came" };

export function create(root, context) {
  const models = context.models("generate");
  if (!models.length) {
    missing(root, "that generates text is loaded", HOW.model);
    return {};
  }
  return new GeneratePanel(models);
}

class GeneratePanel {
  constructor(models) {
    this.models = models;
    this.form = byId("generate-form");
    this.fields = this.form.elements;
    this.errorPlace = byId("generate-error");
    this.place = byId("generated");
    this.controller = null;
    setOptions(this.fields.model, models.map(({ name }) => [name, name]));
    this.fields.model.closest("label").hidden = models.length < 2;
    this.fields.inputs.value = EXAMPLE;
    this.fields.max_new_tokens.value = Math.min(64, Math.ceil(models[0].max_total_tokens / 2));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.generate();
    });
    submitOnControlEnter(this.form);
    byId("stop").addEventListener("click", () => this.controller?.abort());
    for (const [event, isActive] of Object.entries({ pointerover: true, focusin: true, pointerout: false, focusout: false })) {
      this.place.addEventListener(event, ({ target }) => target.matches(".token") && this.tell(target, isActive));
    }
  }

  parameters() {
    const model = this.models.find(({ name }) => name === this.fields.model.value);
    const parameters = { details: true, max_new_tokens: numberIn(this.fields.max_new_tokens) };
    const temperature = numberIn(this.fields.temperature);
    if (temperature) parameters.temperature = temperature;
    for (const name of OPTIONAL) parameters[name] = numberIn(this.fields[name]);
    // A temperature of 0 asks for the likeliest token, and the model would draw if it were told how to.
    if (temperature === 0) for (const name of ["top_p", "top_k", "seed"]) delete parameters[name];
    if (this.fields.stop.value) parameters.stop = [this.fields.stop.value];
    parameters.top_n_tokens = Math.min(MOST_OTHERS, model.max_top_tokens);
    return parameters;
  }

  async generate() {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    const isCurrent = () => controller === this.controller;
    clearError(this.form, this.errorPlace);
    this.begin();
    const started = performance.now();
    let count = 0;
    const report = (how) => {
      const seconds = (performance.now() - started) / 1000;
      this.say(`${count} tokens, ${(count / seconds).toFixed(0)} per second; ${how}.`);
    };
    try {
      const body = { inputs: this.fields.inputs.value, model: this.fields.model.value, parameters: this.parameters() };
      const response = await request("generate_stream", { body, signal: controller.signal });
      for await (const event of events(response)) {
        if (!isCurrent()) return;
        if (event.error) throw new ServerError(event.error);
        count += 1;
        this.add(event);
        if (event.details) report(ENDINGS[event.details.finish_reason]);
      }
    } catch (error) {
      if (!isCurrent()) return;
      if (wasAborted(error)) report("stopped");
      else {
        this.say("");
        byId("generate-result").hidden = count === 0;
        showError(this.form, this.errorPlace, error);
      }
    } finally {
      if (isCurrent()) this.end();
    }
  }

  begin() {
    this.place.replaceChildren(element("span", { class: "given" }, this.fields.inputs.value));
    this.place.setAttribute("aria-busy", "true");
    byId("generate-result").hidden = false;
    byId("token-readout").textContent = HINT;
    byId("stop").disabled = false;
    this.say("Generating …");
  }

  end() {
    this.place.removeAttribute("aria-busy");
    byId("stop").disabled = true;
    rove(this.place, ".token");
  }

  add({ token, top_tokens: others }) {
    const probability = Math.exp(token.logprob);
    const node = element("span", { class: token.special ? "token special" : "token" }, token.text);
    node.style.setProperty("--probability", probability.toFixed(4));
    const list = (others ?? []).map((other) => `${visible(other.text)} ${percent(Math.exp(other.logprob))}`).join(", ");
    node.dataset.told = `“${visible(token.text)}” ${percent(probability)}${list && `; likeliest: ${list}`}`;
    this.place.append(node);
  }

  tell(node, isActive) {
    node.classList.toggle("active", isActive);
    byId("token-readout").textContent = isActive ? node.dataset.told : HINT;
  }

  say(text) {
    byId("generate-status").textContent = text;
  }
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
