// What the curves are at one place of the x-axis: pointed at, tapped, or reached with arrow keys.
function places() {
  const xs = drawn.shown.flatMap(curve => curve.mean.x).filter(x => !drawn.scale.isLog || x > 0);
  return [...new Set(xs)].sort((a, b) => a - b);
}

const nearest = (values, x) =>
  values.reduce((best, value) => Math.abs(value - x) < Math.abs(best - x) ? value : best, values[0]);

function read(x) {
  cursor = x;
  const box = get("readout");
  if (!drawn) return;
  drawn.svg.querySelector(".cross")?.remove();
  box.replaceChildren();
  if (x === null) {
    write(box, "span", "Point at the curves, tap them, or use the arrow keys to read them.", { class: "quiet" });
    return;
  }
  const { svg, scale, shown, wanted } = drawn, place = scale.x(x);
  draw(svg, "line", { class: "cross", x1: place, x2: place, y1: ROOM.top, y2: scale.height - ROOM.bottom });
  write(box, "strong", `${wanted.axis.label}: ${say(x)}`);
  const body = write(write(box, "table"), "tbody");
  for (const { group, mean, runs } of shown) {
    const near = nearest(mean.x, x), n = mean.x.indexOf(near);
    // A curve tells nothing beyond its ends.
    if (near === undefined || x < mean.x[0] && !wanted.axis.measured || x > Math.max(...mean.x) * 1.0001) continue;
    const row = write(body, "tr");
    write(row, "th", group.title, { scope: "row" });
    const ends = Number.isFinite(mean.low[n]) ? ` [${say(mean.low[n])}, ${say(mean.high[n])}]` : "";
    write(row, "td", say(mean.y[n]) + ends);
    write(row, "td", `n=${runs.length}` + (near === x ? "" : `, at ${say(near)}`));
  }
}

function pointed(event) {
  if (!drawn) return;
  const box = drawn.svg.getBoundingClientRect();
  const wanted = (event.clientX - box.left) / box.width * drawn.scale.width;
  const values = places();
  if (!values.length) return;
  const spots = values.map(drawn.scale.x);
  read(values[spots.indexOf(nearest(spots, wanted))]);
}

function stepped(event) {
  if (event.key === "Escape") return read(null);
  const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (!drawn || !(event.key in moves)) return;
  event.preventDefault();
  const values = places();
  if (!values.length) return;
  const from = cursor === null ? (moves[event.key] > 0 ? -1 : values.length) : values.indexOf(nearest(values, cursor));
  read(values[Math.min(values.length - 1, Math.max(0, from + moves[event.key]))]);
}

// A button for each condition, with how many seeds it stands on.
function legend(curves) {
  const box = get("legend"), held = document.activeElement?.dataset?.group;
  box.replaceChildren();
  for (const { group, place, runs } of curves) {
    const button = write(box, "button", undefined, {
      type: "button", "aria-pressed": String(!hidden.has(place)), "data-group": place,
      title: `${group.condition}; seeds ${runs.map(run => run.seed).join(", ")}`,
    });
    const sample = draw(button, "svg", { viewBox: "0 0 30 12", class: "ink", style: `--c:${group.colour}`, "aria-hidden": "true" });
    draw(sample, "path", { class: "mean", d: "M0,6H30", "stroke-dasharray": group.dash });
    draw(sample, "path", { class: "mark", d: markPath(group.marker, 3.5), transform: "translate(15,6)" });
    write(button, "span", `${group.title}, n=${runs.length}`);
    button.addEventListener("click", () => {
      if (!hidden.delete(place)) hidden.add(place);
      redraw();
    });
    if (String(place) === held) button.focus();
  }
  if (curves.length < 3) return;
  for (const [text, isHidden] of [["show all", false], ["hide all", true]]) {
    const button = write(box, "button", text, { type: "button" });
    button.addEventListener("click", () => {
      for (const { place } of curves) isHidden ? hidden.add(place) : hidden.delete(place);
      redraw();
    });
  }
}

function options() {
  DATA.metrics.forEach((metric, n) => write(get("metric"), "option", labelOf(metric), { value: n }));
  DATA.axes.forEach((axis, n) => write(get("axis"), "option", axis.label, { value: n }));
  DATA.envs.forEach((env, n) => write(get("env"), "option", env, { value: n }));
  get("env-label").hidden = DATA.envs.length < 2;
  // Many bands hide each other.
  get("band").checked = Math.max(...DATA.envs.map((_, n) => DATA.groups.filter(g => g.env === n).length)) <= 8;
}

if (DATA.metrics.length && DATA.axes.length && DATA.groups.length) {
  options();
  for (const id of ["metric", "axis", "env", "singles", "band", "log"])
    get(id).addEventListener("change", () => { cursor = null; redraw(); });
  get("choice").addEventListener("submit", event => event.preventDefault());
  get("chart").addEventListener("pointermove", pointed);
  get("chart").addEventListener("pointerdown", pointed);
  get("chart").addEventListener("keydown", stepped);
  let width = 0;
  new ResizeObserver(() => {
    if (get("chart").clientWidth !== width) { width = get("chart").clientWidth; redraw(); }
  }).observe(get("chart"));
  redraw();
} else {
  get("choice").hidden = true;
  get("chart").textContent = "No run that counts has a number to draw.";
}
