// Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/), as much as /metrics writes.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The samples of `text`, by name: lists of {labels, value}. */
export function parseMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : SAMPLE.exec(line);
    if (!match) continue;
    const [, name, labels, value] = match;
    const list = samples.get(name) ?? samples.set(name, []).get(name);
    list.push({ labels: Object.fromEntries([...(labels ?? "").matchAll(LABEL)].map(([, key, text]) => [key, text])), value: Number(value) });
  }
  return samples;
}

/** The sum of the samples of `name` whose labels agree with `wanted`. */
export function sum(samples, name, wanted = {}) {
  return (samples.get(name) ?? [])
    .filter(({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value))
    .reduce((total, { value }) => total + value, 0);
}
