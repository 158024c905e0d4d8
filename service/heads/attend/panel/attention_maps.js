// An answer of POST /attention, and which of its maps is shown.
import { visible } from "../../js/dom.js";
import { decode } from "../../js/weights.js";

const AXES = { encoder: ["source", "source"], decoder: ["target", "target"], cross: ["target", "source"] };

export class AttentionMaps {
  /** `before`: the maps that were shown until now, whose choices stay where they are possible. */
  constructor(answer, before) {
    this.answer = answer;
    this.decoded = {};
    this.kinds = Object.keys(answer.maps).sort((a, b) => Number(b === "cross") - Number(a === "cross"));
    const same = before && before.answer.model === answer.model;
    if (same) this.choose({ kind: before.kind, layer: before.layer, head: before.head, names: before.names });
    else this.chooseFirst();
  }

  /** What tells most at first: the head that aligns words best, where the model names one. */
  chooseFirst() {
    const { alignment } = this.answer;
    if (alignment) {
      this.choose({
        kind: "cross", layer: alignment.layer, head: alignment.head, names: alignment.shifted ? "reads" : "writes",
      });
    } else this.choose({ kind: this.kinds[0], layer: 0, head: "mean", names: "reads" });
  }

  choose({ kind = this.kind, layer = this.layer, head = this.head, names = this.names }) {
    this.kind = this.kinds.includes(kind) ? kind : this.kinds[0];
    const { layers, heads } = this.current;
    this.layer = layers.includes(Number(layer)) ? Number(layer) : layers[0];
    this.head = head === "mean" || head === "max" ? head : heads.includes(Number(head)) ? Number(head) : heads[0];
    this.names = names;
  }

  /** All maps of the chosen kind; decoded when they are first needed. */
  get current() {
    return (this.decoded[this.kind] ??= decode(this.answer.maps[this.kind]));
  }

  /** Whether a row can be named by the token that it chose. */
  get canWrite() {
    return this.kind !== "encoder" && this.answer.target.tokens.some((token) => token.predicts);
  }

  /** The chosen map with names for its rows and columns, as the views draw it. */
  matrix() {
    const map = this.current.map(this.layer, this.head);
    const [rows, columns] = AXES[this.kind].map((axis) => this.answer[axis].tokens);
    return {
      map,
      lowest: 0,
      rows: rows.map((token) => this.rowName(token)),
      columns: columns.map((token) => ({ text: visible(token.text), special: token.special })),
      headings: this.headings(),
      describe: (row, column) => `${this.longName(rows[row])} → ${visible(columns[column].text)}: ${map.at(row, column).toFixed(3)}`,
      label: `${this.kind} attention of layer ${this.layer}, head ${this.head}`,
    };
  }

  rowName(token) {
    if (!this.canWrite || this.names === "reads") return { text: visible(token.text), special: token.special };
    return token.predicts ? { text: visible(token.predicts.text), special: false } : { text: "?", special: true };
  }

  longName(token) {
    const next = this.canWrite && token.predicts ? ` (writes ${visible(token.predicts.text)})` : "";
    return `${visible(token.text)}${next}`;
  }

  headings() {
    if (this.kind === "encoder") return ["looks", "is looked at"];
    const rows = this.names === "writes" && this.canWrite ? "writes" : "reads";
    return [rows, this.kind === "cross" ? "of the source" : "is looked at"];
  }
}
