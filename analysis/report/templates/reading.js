// What the curves are at one place of the x-axis: pointed at, tapped, or reached with arrow keys.
const MOST_READ = 12;

function places() {
  const xs = drawn.shown.flatMap(curve => curve.mean.x);
  return [...new Set(xs)].sort((a, b) => a - b);
}

const nearest = (values, x) =>
  values.reduce((best, value) => Math.abs(value - x) < Math.abs(best - x) ? value : best, values[0]);

// What each curve has at x: nothing is told beyond its ends.
function valuesAt(x) {
  const found = [];
  for (const { group, mean, runs } of drawn.shown) {
    const near = nearest(mean.x, x), n = mean.x.indexOf(near);
    if (near === undefined || x < mean.x[0] && !drawn.wanted.axis.measured || x > range(mean.x)[1] * 1.0001) continue;
    const ends = Number.isFinite(mean.low[n]) ? ` [${say(mean.low[n])}, ${say(mean.high[n])}]` : "";
    found.push({ group, y: mean.y[n], text: say(mean.y[n]) + ends,
      note: `n=${runs.length}` + (near === x ? "" : `, at ${say(near)}`) });
  }
  return found.sort((one, other) => other.y - one.y);
}

// isSpoken: whether it was reached with keys, and is to be read out.
function read(x, isSpoken = false) {
  cursor = x;
  const box = get("readout");
  if (drawn) drawn.svg.querySelector(".cross")?.remove();
  box.replaceChildren();
  box.hidden = x === null || !drawn;
  if (box.hidden) return;
  const { svg, scale, wanted } = drawn, place = scale.x(x), values = valuesAt(x);
  draw(svg, "line", { class: "cross", x1: place, x2: place, y1: ROOM.top, y2: scale.height - ROOM.bottom });
  write(box, "strong", `${wanted.axis.label}: ${say(x)}`);
  const body = write(write(box, "table"), "tbody");
  for (const { group, text, note } of values.slice(0, MOST_READ)) {
    const row = write(body, "tr"), head = write(row, "th", undefined, { scope: "row" });
    write(head, "i", undefined, { class: "ink swatch", style: `--c:${group.colour}` });
    head.append(group.title);
    write(row, "td", text);
    write(row, "td", note);
  }
  if (values.length > MOST_READ) write(box, "span", `and ${values.length - MOST_READ} more`, { class: "quiet" });
  beside(box, place);
  if (isSpoken) get("spoken").textContent = `${wanted.axis.label} ${say(x)}: ` +
    values.map(({ group, text }) => `${group.title} ${text}`).join("; ");
}

// The values stand beside the place that they are of, on the side that has room.
function beside(box, place) {
  const frame = get("chart-box").clientWidth, wide = box.offsetWidth;
  const x = place / drawn.scale.width * get("chart").clientWidth;
  const right = x + 14, left = x - 14 - wide;
  box.style.left = `${Math.max(0, right + wide <= frame ? right : left >= 0 ? left : frame - wide)}px`;
  box.style.top = `${ROOM.top + 4}px`;
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
  read(values[Math.min(values.length - 1, Math.max(0, from + moves[event.key]))], true);
}
