// Loaded before anything is drawn, so that a page chosen to be dark never flashes white. The only script that is no module.
"use strict";
(() => {
  const KEY = "polyhead.theme";
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is switched off in this browser: the system's theme then
    }
  }

  function apply(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function choose(theme) {
    apply(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // The choice holds until the page is left.
    }
    window.dispatchEvent(new Event("themechange"));
  }

  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = root.dataset.theme ?? "auto";
    select.addEventListener("change", () => choose(select.value));
  });
})();
