// One stop of the Tab key for many words or tokens; the arrow keys go from one to the next (ARIA's roving tabindex).

/** Make the children of `container` that match `selector` one stop. Call again after they have changed. */
export function rove(container, selector) {
  const items = [...container.querySelectorAll(selector)];
  for (const [place, item] of items.entries()) item.setAttribute("tabindex", place === 0 ? "0" : "-1");
  if (container.dataset.roves) return;
  container.dataset.roves = "yes";
  container.addEventListener("keydown", (event) => {
    const all = [...container.querySelectorAll(selector)];
    const place = all.indexOf(event.target);
    const next = target(event.key, place, all);
    if (place < 0 || !next) return;
    event.preventDefault();
    next.focus();
  });
  container.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const item of container.querySelectorAll(`${selector}[tabindex="0"]`)) item.setAttribute("tabindex", "-1");
    event.target.setAttribute("tabindex", "0");
  });
}

function target(key, place, all) {
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  if (key === "ArrowRight" || key === "ArrowDown") return all[place + 1];
  if (key === "ArrowLeft" || key === "ArrowUp") return all[place - 1];
  return undefined;
}
