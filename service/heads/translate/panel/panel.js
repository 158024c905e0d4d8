// The panel Translate: two languages, two texts, and the answer as one types.
import { postJson, wasAborted } from "../../js/api.js";
import { byId, debounce, element, setOptions, submitOnControlEnter } from "../../js/dom.js";
import { clearError, HOW, missing, showError } from "../../js/messages.js";
import { TranslationView } from "./translation_view.js";

const AUTO = "auto";

export function create(root, context) {
  if (!context.models("translate").length) {
    missing(root, "that translates is loaded", HOW.model);
    return {};
  }
  return new TranslatePanel(context);
}

class TranslatePanel {
  constructor(context) {
    this.context = context;
    this.form = byId("translate-form");
    this.fields = Object.fromEntries(["source", "target", "q", "alternatives"].map((name) => [name, this.form.elements[name]]));
    this.errorPlace = byId("translate-error");
    this.sequence = 0;
    this.shown = null;
    const hasAttention = context.models("translate").some((model) => model.attention.includes("cross"));
    this.view = new TranslationView(hasAttention);
    this.later = debounce(() => this.translate(), context.settings.frontendTimeout);
    this.fields.q.maxLength = context.settings.charLimit;
    this.offerLanguages();
    this.listen();
    if (this.fields.q.value) this.translate(); // the browser has kept it over a reload
  }

  show() {
    this.fields.q.focus({ preventScroll: true });
  }

  offerLanguages() {
    const all = this.context.languages.map(({ code, name }) => [code, name]);
    setOptions(this.fields.source, [[AUTO, "Detect language"], ...all], AUTO);
    this.offerTargets(this.context.settings.language.target.code);
    const most = Math.min(3, this.context.info.limits.max_alternatives);
    setOptions(this.fields.alternatives, Array.from({ length: most + 1 }, (_, count) => [count, count]), Math.min(2, most));
  }

  /** The languages that the source can be translated to. */
  offerTargets(chosen = this.fields.target.value) {
    const source = this.fields.source.value;
    const { languages } = this.context;
    const codes = source === AUTO
      ? languages.map(({ code }) => code)
      : languages.find(({ code }) => code === source).targets.filter((code) => code !== source);
    setOptions(this.fields.target, codes.map((code) => [code, this.context.languageName(code)]), chosen);
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.translate();
    });
    submitOnControlEnter(this.form);
    this.fields.q.addEventListener("input", () => {
      this.view.showSource(this.fields.q.value);
      this.drop();
      this.later();
    });
    this.fields.source.addEventListener("change", () => {
      this.offerTargets();
      this.translate();
    });
    for (const name of ["target", "alternatives"]) this.fields[name].addEventListener("change", () => this.translate());
    byId("swap").addEventListener("click", () => this.swap());
    byId("copy").addEventListener("click", () => this.copy());
    byId("to-attention").addEventListener("click", () => this.context.open("attention", this.shown));
  }

  /** Whatever is on its way is for a text that is no longer there; the server stops working on it as well. */
  drop() {
    this.sequence += 1;
    this.controller?.abort();
  }

  async translate() {
    this.later.cancel();
    this.drop();
    clearError(this.form, this.errorPlace);
    const { q, source, target, alternatives } = Object.fromEntries(
      Object.entries(this.fields).map(([name, field]) => [name, field.value]),
    );
    if (!q.trim()) {
      this.present(null);
      return;
    }
    const sequence = this.sequence;
    this.controller = new AbortController();
    this.say("Translating …");
    const started = performance.now();
    try {
      const body = { q, source, target, alternatives: Number(alternatives) };
      const answer = await postJson("translate", body, this.controller.signal);
      if (sequence !== this.sequence) return;
      const spoken = source === AUTO ? answer.detectedLanguage.language : source;
      this.present({ text: q, source: spoken, target, targetText: answer.translatedText }, answer);
      this.say(`${Math.round(performance.now() - started)} ms`);
    } catch (error) {
      if (wasAborted(error) || sequence !== this.sequence) return;
      this.present(null);
      showError(this.form, this.errorPlace, error);
    }
  }

  present(shown, answer = {}) {
    this.shown = shown;
    this.say("");
    this.view.show(shown);
    const detected = answer.detectedLanguage;
    byId("detected").textContent = detected
      ? `Detected: ${this.context.languageName(detected.language)} (${Math.round(detected.confidence)} %)`
      : "";
    byId("copy").disabled = byId("to-attention").disabled = !shown;
    this.offerAlternatives(answer.alternatives ?? []);
  }

  offerAlternatives(texts) {
    byId("alternatives").hidden = texts.length === 0;
    byId("alternatives-list").replaceChildren(
      ...texts.map((text, place) =>
        element("li", {}, element("button", { type: "button", title: "Take this one", onclick: () => this.take(texts, place) }, text)),
      ),
    );
  }

  /** Show an alternative in place of the translation, which becomes an alternative. */
  take(texts, place) {
    const others = texts.with(place, this.shown.targetText);
    this.shown = { ...this.shown, targetText: texts[place] };
    this.view.show(this.shown);
    this.offerAlternatives(others);
    byId("alternatives-list").querySelectorAll("button")[place].focus();
  }

  swap() {
    const { source, target, q } = this.fields;
    const from = source.value === AUTO ? this.shown?.source : source.value;
    if (!from || from === target.value) {
      this.say("Choose the language of the text first: there is nothing to swap yet.");
      return;
    }
    source.value = target.value;
    this.offerTargets(from);
    if (this.shown) q.value = this.shown.targetText;
    this.view.showSource(q.value);
    this.translate();
  }

  async copy() {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(this.shown.targetText);
      this.say("Copied.");
      return;
    }
    // Browsers give pages the clipboard over HTTPS and on the same machine only.
    getSelection().selectAllChildren(byId("output"));
    this.say("Selected: copy it with Ctrl+C.");
  }

  say(text) {
    byId("translate-status").textContent = text;
  }
}
