// A button for each condition that passes the filters, with how many seeds it stands on.
function legend(places, shown) {
  const box = get("legend"), held = document.activeElement?.dataset?.group;
  box.replaceChildren();
  const visible = new Set(shown.map(({ place }) => place));
  const ordered = places.length > FIRST ? places : [...places].sort((one, other) => one - other);
  for (const place of ordered) legendButton(box, place, visible.has(place), places);
  for (const [text, chosen] of places.length < 3 ? [] : [["show all", places], ["hide all", []]])
    write(box, "button", text, { type: "button", class: "all" }).addEventListener("click", () => pick(new Set(chosen)));
  if (held !== undefined) box.querySelector(`[data-group="${held}"]`)?.focus();
}

function legendButton(box, place, isOn, places) {
  const group = DATA.groups[place], seeds = group.runs.map(run => run.seed);
  const button = write(box, "button", undefined, {
    type: "button", "aria-pressed": String(isOn), "data-group": place,
    title: `${group.condition}; seeds ${seeds.join(", ")}`,
  });
  const sample = draw(button, "svg", { viewBox: "0 0 30 12", class: "ink", style: `--c:${group.colour}`, "aria-hidden": "true" });
  draw(sample, "path", { class: "mean", d: "M0,6H30", "stroke-dasharray": group.dash });
  draw(sample, "path", { class: "mark", d: markPath(group.marker, 3.5), transform: "translate(15,6)" });
  write(button, "span", `${group.title}, n=${seeds.length}`);
  button.addEventListener("click", () => {
    const chosen = new Set(places.filter(one => isShown(one, places)));
    if (!chosen.delete(place)) chosen.add(place);
    pick(chosen);
  });
}

function pick(chosen) {
  picked = chosen;
  redraw();
}
