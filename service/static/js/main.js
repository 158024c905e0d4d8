// The page's frame: tabs, deep links by hash, and what all panels share.
import { askForKey, getJson } from "./api.js";
import { byId, element } from "./dom.js";

// The server puts the page together from the panels that it has.
const NAMES = [...document.querySelectorAll("[role=tab]")].map((button) => button.id.replace("tab-", ""));
const panels = new Map();
let current = null;

/** What every panel is given: the models, the languages, and how to open another panel. */
async function loadContext() {
  const [info, settings, languages] = await Promise.all([
    getJson("info"), getJson("frontend/settings"), getJson("languages"),
  ]);
  if (settings.keyRequired) askForKey();
  return {
    info,
    settings,
    languages,
    languageName: (code) => languages.find((language) => language.code === code)?.name ?? code,
    models: (task) => info.models.filter((model) => model.task === task),
    open: (name, payload) => {
      history.pushState(null, "", `#${name}`);
      return show(name, payload, { focus: true });
    },
  };
}

const tab = (name) => byId(`tab-${name}`);
const section = (name) => byId(`panel-${name}`);
const fromHash = () => NAMES.find((name) => name === location.hash.slice(1));

async function show(name, payload, { focus = false } = {}) {
  panels.get(current)?.hide?.();
  current = name;
  for (const other of NAMES) {
    const chosen = other === name;
    tab(other).setAttribute("aria-selected", String(chosen));
    tab(other).tabIndex = chosen ? 0 : -1;
    section(other).hidden = !chosen;
  }
  document.title = `${tab(name).textContent} · Polyhead`;
  if (focus) tab(name).focus();
  const context = await ready;
  // A panel's code is fetched when it is first seen, so a phone that translates loads no plotting library.
  const { create } = await import(new URL(section(name).dataset.module, document.baseURI));
  if (!panels.has(name)) panels.set(name, create(section(name), context));
  section(name).inert = false; // until here nothing would have answered
  if (current === name) await panels.get(name).show?.(payload);
}

function listen() {
  for (const [place, name] of NAMES.entries()) {
    tab(name).addEventListener("click", () => {
      if (current !== name) history.pushState(null, "", `#${name}`);
      report(show(name));
    });
    tab(name).addEventListener("keydown", (event) => {
      const step = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: NAMES.length - 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const next = NAMES.at(step % NAMES.length);
      history.pushState(null, "", `#${next}`);
      report(show(next, undefined, { focus: true }));
    });
  }
  const follow = () => {
    const name = location.hash ? fromHash() : NAMES[0];
    if (name && name !== current) report(show(name));
  };
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash is the panel's
    byId("main").focus();
  });
}

/** Say what kept a panel from being shown, with a way to try again. */
function report(promise) {
  promise.catch((error) => {
    byId("failure").replaceChildren(
      element("p", {}, error.message),
      element("button", { type: "button", onclick: () => location.reload() }, "Try again"),
    );
    byId("failure").hidden = false;
  });
}

const ready = loadContext();
listen();
report(show(fromHash() ?? NAMES[0]));
