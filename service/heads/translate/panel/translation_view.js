// The two texts of the panel Translate: words of the translation, and the source words that light up for them.
import { wasAborted } from "../../js/api.js";
import { byId, element } from "../../js/dom.js";
import { rove } from "../../js/roving.js";
import { lines, overlap, pieces } from "./spans.js";
import { WordAttention } from "./word_attention.js";

const HINT = "Point at a word of the translation, or go through them with the arrow keys, to see which words of the text it looks at.";
const NO_HINT = "The bundle has no attention graph: export its checkpoint again with --attention to see what each word looks at.";

export class TranslationView {
  /** `hasAttention`: whether a model can show what it looks at. */
  constructor(hasAttention) {
    this.hasAttention = hasAttention;
    this.output = byId("output");
    this.backdrop = byId("backdrop");
    this.hint = byId("word-hint");
    this.attention = null;
    this.active = null;
    for (const [event, action] of Object.entries({
      pointerover: (word) => this.light(word), focusin: (word) => this.light(word),
      pointerout: () => this.dim(), focusout: () => this.dim(),
    })) {
      this.output.addEventListener(event, ({ target }) => target.matches("[data-start]") && action(target));
    }
  }

  /** Show a translation, {text, source, target, targetText}, or nothing. */
  show(shown) {
    this.attention?.close();
    this.active = null;
    this.shown = shown;
    this.showSource(shown?.text ?? byId("q").value);
    this.attention = shown && this.hasAttention ? new WordAttention(shown) : null;
    this.hint.textContent = shown ? (this.hasAttention ? HINT : NO_HINT) : "";
    this.hint.classList.remove("error");
    this.output.replaceChildren(...(shown ? this.wordsOf(shown.targetText) : []));
    this.output.lang = shown?.target ?? "";
    if (this.attention) rove(this.output, "[data-start]");
  }

  wordsOf(text) {
    return pieces(text).map(({ start, end, isWord }) =>
      isWord && this.hasAttention
        ? element("span", { class: "word", "data-start": start, "data-end": end }, text.slice(start, end))
        : document.createTextNode(text.slice(start, end)),
    );
  }

  /** The text behind the one that is written, which makes room for it and carries the lights; `lit` in order. */
  showSource(text, lit = []) {
    const nodes = [];
    let place = 0;
    for (const { start, end, weight } of lit) {
      const mark = element("mark", {}, text.slice(start, end));
      mark.style.setProperty("--weight", weight.toFixed(3));
      nodes.push(text.slice(place, start), mark);
      place = end;
    }
    // A line break at the very end has no height without something after it.
    this.backdrop.replaceChildren(...nodes, text.slice(place), "\u200b");
  }

  async light(node) {
    const word = { start: Number(node.dataset.start), end: Number(node.dataset.end) };
    this.active = node;
    const target = lines(this.shown.targetText);
    const source = lines(this.shown.text);
    const number = target.findIndex((line) => overlap({ start: line.start, end: line.start + line.text.length }, word));
    if (source.length !== target.length) {
      this.say("The text and its translation have different numbers of lines, so their words cannot be matched.");
      return;
    }
    const [from, to] = [source[number], target[number]];
    try {
      const found = await this.attention.line(from.text, to.text);
      if (this.active !== node) return; // by now the pointer is elsewhere
      const lit = found
        .of({ start: word.start - to.start, end: word.end - to.start })
        .map((piece) => ({ ...piece, start: piece.start + from.start, end: piece.end + from.start }));
      this.showSource(this.shown.text, lit);
      const names = lit.toSorted((a, b) => b.weight - a.weight).map(({ start, end }) => this.shown.text.slice(start, end));
      this.say(`${node.textContent} ← ${names.join(", ") || "no word of the text"}`);
    } catch (error) {
      if (!wasAborted(error)) this.say(error.message, true);
    }
  }

  dim() {
    this.active = null;
    if (this.shown) this.showSource(this.shown.text);
  }

  say(text, isError = false) {
    this.hint.textContent = text;
    this.hint.classList.toggle("error", isError);
  }
}
