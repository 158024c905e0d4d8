"use strict";

const $ = (id) => document.getElementById(id);
let running = null;

function show(message, isError = false) {
  $("status").textContent = message;
  $("status").classList.toggle("error", isError);
}

async function fetchJson(path, options) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `The server answered ${response.status}.`);
  return body;
}

async function loadLanguages() {
  const [languages, settings] = await Promise.all([fetchJson("/languages"), fetchJson("/frontend/settings")]);
  for (const { code, name } of languages) {
    $("source").add(new Option(name, code));
    $("target").add(new Option(name, code));
  }
  $("target").value = settings.language.target.code;
  $("q").maxLength = settings.charLimit;
  $("key-label").hidden = !settings.keyRequired;
}

async function translate(event) {
  event.preventDefault();
  running?.abort(); // the server stops working on it as well
  running = new AbortController();
  show("Translating …");
  const started = performance.now();
  try {
    const answer = await fetchJson("/translate", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      signal: running.signal,
      body: JSON.stringify({
        q: $("q").value,
        source: $("source").value,
        target: $("target").value,
        alternatives: 2,
        api_key: $("key").value || null,
      }),
    });
    $("output").textContent = answer.translatedText;
    const alternatives = answer.alternatives ?? [];
    $("alternatives").hidden = alternatives.length === 0;
    $("alternatives").replaceChildren(...alternatives.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
    const detected = answer.detectedLanguage ? `, from ${answer.detectedLanguage.language}` : "";
    show(`${Math.round(performance.now() - started)} ms${detected}`);
  } catch (error) {
    if (error.name !== "AbortError") show(error.message, true);
  }
}

function swap() {
  const { value: source } = $("source");
  if (source === "auto") return;
  $("source").value = $("target").value;
  $("target").value = source;
  if ($("output").textContent) {
    $("q").value = $("output").textContent;
    $("output").textContent = "";
  }
}

$("translate").addEventListener("submit", translate);
$("swap").addEventListener("click", swap);
$("q").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("translate").requestSubmit();
});
loadLanguages().catch((error) => show(error.message, true));
