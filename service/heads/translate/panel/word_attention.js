// Which words of a source the words of its translation look at. Asked of the server for one line, once, when needed.
import { postJson } from "../../js/api.js";
import { decode } from "../../js/weights.js";
import { overlap, placedTokens, words } from "./spans.js";

/** The links of one line of a translation; ask for a word with `of`. */
class LineAttention {
  constructor(answer, source, target) {
    this.sourceWords = words(source);
    this.sourceTokens = placedTokens(answer.source.tokens, source);
    this.targetTokens = placedTokens(answer.target.tokens, target);
    const { layer, head, shifted } = answer.alignment;
    this.map = decode(answer.maps.cross).map(layer, head);
    // A row is of the token that was read; unless the model aligns by those, a word's rows are those that chose it.
    this.rowOffset = shifted ? 0 : -1;
  }

  /** Source words for the target word at {start, end}: {start, end, weight}, 1 for the strongest. */
  of(word) {
    const rows = this.targetTokens.filter((token) => overlap(token, word)).map((token) => token.index + this.rowOffset);
    const weights = this.sourceWords.map((sourceWord) => {
      const columns = this.sourceTokens.filter((token) => overlap(token, sourceWord)).map((token) => token.index);
      return rows.reduce((sum, row) => sum + columns.reduce((part, column) => part + this.map.at(row, column), 0), 0);
    });
    const largest = Math.max(...weights, Number.MIN_VALUE);
    return this.sourceWords
      .map((sourceWord, place) => ({ ...sourceWord, weight: weights[place] / largest }))
      .filter(({ weight }) => weight >= 0.25);
  }
}

/** The attention of one translation, by lines. What was asked once is not asked again. */
export class WordAttention {
  constructor({ source, target }) {
    this.languages = { source, target };
    this.cache = new Map();
    this.controller = new AbortController();
  }

  /** A promise of the LineAttention of two lines; it fails with the server's words. */
  line(source, target) {
    const key = JSON.stringify([source, target]);
    if (!this.cache.has(key)) {
      const body = {
        q: source, target_text: target, ...this.languages, kind: "cross", alignment: true, format: "base64-float32",
      };
      this.cache.set(
        key,
        postJson("attention", body, this.controller.signal).then((answer) => new LineAttention(answer, source, target)),
      );
    }
    return this.cache.get(key);
  }

  /** Stop asking: the translation is no longer shown. */
  close() {
    this.controller.abort();
  }
}
