// Attention maps as the server sends them: 32-bit floats in base64, in the order layers, heads, queries, keys.

/** One map: `at(row, column)`, its shape and its largest value. */
class WeightMap {
  constructor(values, numRows, numColumns) {
    this.values = values;
    this.numRows = numRows;
    this.numColumns = numColumns;
    this.largest = values.reduce((largest, value) => Math.max(largest, value), 0) || 1;
  }

  at(row, column) {
    return this.values[row * this.numColumns + column];
  }
}

/** The maps of one kind of attention. */
class KindMaps {
  constructor(entry, values) {
    [, this.numHeads, this.numRows, this.numColumns] = entry.shape;
    this.layers = entry.layers;
    this.heads = entry.heads ?? [0];
    this.values = values;
  }

  /** The map of a head, or of all heads of a layer together: "mean" or "max". Numbers count as the model counts. */
  map(layer, head) {
    const first = this.layers.indexOf(Number(layer));
    if (head === "mean" || head === "max") return this.overHeads(first, head);
    return new WeightMap(this.slice(first, this.heads.indexOf(Number(head))), this.numRows, this.numColumns);
  }

  slice(layerPlace, headPlace) {
    const size = this.numRows * this.numColumns;
    const start = (layerPlace * this.numHeads + headPlace) * size;
    return this.values.subarray(start, start + size);
  }

  overHeads(layerPlace, how) {
    const heads = this.heads.map((_, place) => this.slice(layerPlace, place));
    const combine = how === "max"
      ? (cell) => heads.reduce((largest, values) => Math.max(largest, values[cell]), 0)
      : (cell) => heads.reduce((sum, values) => sum + values[cell], 0) / heads.length;
    const values = Float32Array.from({ length: this.numRows * this.numColumns }, (_, cell) => combine(cell));
    return new WeightMap(values, this.numRows, this.numColumns);
  }
}

/** The maps in an entry of `maps` or `norms`. */
export function decode(entry) {
  const text = atob(entry.weights.data);
  const view = new DataView(new ArrayBuffer(text.length));
  for (let place = 0; place < text.length; place += 1) view.setUint8(place, text.charCodeAt(place));
  // Little-endian on the wire, whatever this machine is.
  const values = Float32Array.from({ length: text.length / 4 }, (_, place) => view.getFloat32(4 * place, true));
  return new KindMaps(entry, values);
}
