// Small helpers for elements. Text is always set as text: nothing that a model or a user writes becomes markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; `onclick` and the like are listeners, null and false attributes are left out. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Replace the options of a select by [value, label] pairs; keeps the choice where it is still there. */
export function setOptions(select, entries, chosen = select.value) {
  select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
  select.value = entries.some(([value]) => String(value) === String(chosen)) ? chosen : (entries[0]?.[0] ?? "");
}

/** `text` in at most `length` characters. */
export function shorten(text, length) {
  const characters = Array.from(text);
  return characters.length <= length ? text : `${characters.slice(0, Math.max(1, length - 1)).join("")}…`;
}

/** A token as people can see it: white space gets a sign. */
export function visible(text) {
  return /^[\s▁]*$/.test(text) ? text.replace(/\n/g, "↵").replace(/[^↵]/g, "␣") || "∅" : text;
}

/** A file for the user to keep. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000); // the browser reads it after the click
}

/** The number in a field; undefined where it is empty. An error names the field that holds something else. */
export function numberIn(field) {
  if (field.validity.badInput) throw new Error(`\`${field.name}\` is not a number.`);
  return field.value === "" ? undefined : Number(field.value);
}

/** Calls `action` once nothing has called for `milliseconds`; `.cancel()` forgets the last call. */
export function debounce(action, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Ctrl+Enter, or Command+Enter, in a text sends its form. */
export function submitOnControlEnter(form) {
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
}
