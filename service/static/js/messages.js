// What a panel says: its state, its errors, and what it lacks.
import { element } from "./dom.js";

/** Show an error beside what caused it, and mark the fields that it names. */
export function showError(form, place, error) {
  clearError(form, place);
  place.textContent = error.message;
  place.hidden = false;
  for (const field of form.elements) {
    if (!field.name || !names(error.message, field.name)) continue;
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", place.id);
  }
}

export function clearError(form, place) {
  place.textContent = "";
  place.hidden = true;
  for (const item of form.querySelectorAll("[aria-invalid]")) {
    item.removeAttribute("aria-invalid");
    if (item.getAttribute("aria-describedby") === place.id) item.removeAttribute("aria-describedby");
  }
}

/** Whether a message of the server is about the parameter `name`, which it quotes or puts before its verb. */
function names(message, name) {
  return message.includes(`\`${name}\``) || new RegExp(`(^|[^\\w])${name} (parameter|must)`).test(message);
}

/** What stands in a panel for which no model is loaded. */
export function missing(root, what, how) {
  root.replaceChildren(
    element(
      "div",
      { class: "notice", role: "note" },
      element("h2", {}, `No model ${what}`),
      element("p", {}, `${how} Then put the bundle into the folder that `, element("code", {}, "POLYHEAD_BUNDLES"),
        " (", element("code", {}, "--bundles"), ") names, and start the server again."),
      element("p", {}, "What is loaded now: ", element("a", { href: "#status" }, "Status"), "."),
    ),
  );
}

/** Where people read how to get a model; the repository's documentation is not served. */
export const HOW = {
  model: "Train one (docs/training.md) or import one (docs/import.md), and export it with python -m export.",
  attention: "Export a checkpoint again with python -m export and the flag --attention (docs/attention.md).",
};
