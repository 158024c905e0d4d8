// What the panel Attention asks for: the model, and the input that a model of its task takes.
import { request } from "../../js/api.js";
import { byId, numberIn, setOptions, submitOnControlEnter } from "../../js/dom.js";

const EXAMPLES = {
  translate: { text: "The house that we bought last year is very old.", second: "" },
  embed: { text: "A dog is running in the park.", second: "" },
  generate: { text: "Once upon a time there was a little girl", second: "" },
};
const LABELS = {
  translate: ["Text", "Translation, if not the model's own"],
  embed: ["Text", "Second text, for a pair"],
  generate: ["Prompt", ""],
};

export class AttentionForm {
  constructor(context) {
    this.context = context;
    this.element = byId("attention-form");
    this.fields = this.element.elements;
    // Those that translate come first: what they look at tells most.
    const offered = context.info.models.filter((model) => model.attention.length);
    this.models = offered.sort((a, b) => Number(b.task === "translate") - Number(a.task === "translate"));
    setOptions(this.fields.model, this.models.map(({ name, task }) => [name, `${name} (${task})`]));
    this.fields.model.closest("label").hidden = this.models.length < 2;
    this.fields.model.addEventListener("change", () => this.chooseModel());
    this.fields.source.addEventListener("change", () => this.offerTargets());
    submitOnControlEnter(this.element);
    this.chooseModel();
  }

  get model() {
    return this.models.find((model) => model.name === this.fields.model.value);
  }

  /** Show the fields of the model's task, with an example in place of another task's. */
  chooseModel() {
    const { task } = this.model;
    for (const place of this.element.querySelectorAll("[data-task]")) place.hidden = !place.dataset.task.split(" ").includes(task);
    [byId("attention-text-label").textContent, byId("attention-second-label").textContent] = LABELS[task];
    if (this.task !== task) Object.entries(EXAMPLES[task]).forEach(([name, text]) => (this.fields[name].value = text));
    this.task = task;
    if (task === "translate") this.offerLanguages();
  }

  /** Pairs of languages that the model translates; any of them where it does not say. */
  directions() {
    return this.model.details.directions ?? this.context.languages.flatMap(({ code, targets }) => targets.map((target) => [code, target]));
  }

  offerLanguages() {
    const name = (code) => [code, this.context.languageName(code)];
    const sources = [...new Set(this.directions().map(([source]) => source))];
    const first = sources.includes("en") ? "en" : sources[0];
    setOptions(this.fields.source, [["auto", "Detect language"], ...sources.map(name)], this.fields.source.value || first);
    this.offerTargets();
  }

  offerTargets(chosen = this.fields.target.value) {
    const source = this.fields.source.value;
    const pairs = this.directions().filter(([from, to]) => from !== to && (source === "auto" || from === source));
    const targets = [...new Set(pairs.map(([, target]) => target))];
    setOptions(this.fields.target, targets.map((code) => [code, this.context.languageName(code)]), chosen);
  }

  /** Look at a translation from the panel Translate. */
  fill({ text, source, target, targetText }) {
    const model = this.models.find(({ task }) => task === "translate");
    if (!model) return;
    this.fields.model.value = model.name;
    this.chooseModel();
    this.fields.source.value = source;
    this.offerTargets(target);
    this.fields.text.value = text;
    this.fields.second.value = targetText;
  }

  /** The fields of POST /attention that say what to look at. */
  request() {
    const { text, second, source, target, max_new_tokens: newTokens } = this.fields;
    const model = this.model.name;
    if (this.task === "embed") return { model, inputs: second.value ? [text.value, second.value] : text.value };
    if (this.task === "generate") return { model, prompt: text.value, max_new_tokens: numberIn(newTokens) };
    return {
      model, q: text.value, source: source.value, target: target.value, target_text: second.value || undefined,
      alignment: true,
    };
  }

  /** What was made of it, in words. */
  describe({ text }) {
    if (text === null || text === undefined) return "";
    return this.task === "translate" ? `Translation: ${text}` : text && `Continuation: ${text}`;
  }

  fetch(body) {
    return request("attention", { body });
  }
}
