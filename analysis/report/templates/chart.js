// The chart: conditions that the filters leave, of which some are shown.
const ROOM = { left: 58, right: 14, top: 26, bottom: 44 };
let drawn = null, cursor = null, isBandChosen = false;

function draw(parent, name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function write(parent, name, text, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const choice = () => ({
  metric: DATA.metrics[get("metric").value], axis: DATA.axes[get("axis").value],
  env: +get("env").value, singles: get("singles").checked, band: get("band").checked,
  less: get("paired").checked && !DATA.axes[get("axis").value].measured,
});
// Bands are shown at first where they are few, which hide less, and of three seeds or more.
const MOST_BANDS = 4, FEWEST_SEEDS = 3;
const hasBands = shown => shown.length <= MOST_BANDS && shown.every(({ runs }) => runs.length >= FEWEST_SEEDS);

// The conditions that pass the filters and have these two numbers, those shown first in front.
function matching({ metric, axis, env }) {
  const has = run => axis.id in run[metric.of] && metric.id in run[metric.of];
  const places = DATA.groups.map((_, place) => place).filter(place => {
    const group = DATA.groups[place];
    return group.env === env && passes(place) && group.runs.some(has);
  });
  return places.sort((one, other) => DATA.groups[one].rank - DATA.groups[other].rank);
}

function curvesOf(places, { metric, axis }) {
  const found = [];
  for (const place of [...places].sort((one, other) => one - other)) {
    const group = DATA.groups[place];
    const runs = group.runs.map(run => curveOf(run, metric.of, axis.id, metric.id)).filter(Boolean);
    if (runs.length) found.push({ group, place, runs, mean: meanOf(runs, axis.measured, DATA.t, metric.share, metric.least ?? -Infinity) });
  }
  return found;
}

function extent(values) {
  const finite = values.filter(Number.isFinite);
  const [low, high] = range(finite);
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

// The axis of shares does not go beyond 0 and 1, but for the width of a line.
const within = ([low, high], isShare) =>
  isShare && low < 1 && high > 0 ? [Math.max(-0.02, low), Math.min(1.02, high)] : [low, high];

// The least and the most; a spread would have too many arguments.
const range = values => values.reduce(([low, high], value) =>
  [value < low ? value : low, value > high ? value : high], [Infinity, -Infinity]);

// From numbers to places in the drawing. right: pixels beside the lines, for their names.
function scales(curves, { singles, band, metric, less }, { width, height, right: room }) {
  const alone = curves.filter(({ mean }) => singles || !mean.x.length).flatMap(({ runs }) => runs);
  const xs = [...curves.map(({ mean }) => mean), ...alone].flatMap(line => line.x);
  const ys = [...curves.map(({ mean }) => mean), ...alone].flatMap(line => line.y);
  const bands = band ? curves.flatMap(({ mean }) => [...mean.low, ...mean.high]) : [];
  let [left, right] = range(xs);
  if (left === right) { left -= 1; right += 1; }
  const [bottom, top] = within(extent(ys.concat(bands)), metric.share && !less), wide = width - ROOM.left - room;
  const tall = height - ROOM.top - ROOM.bottom;
  return {
    left, right, bottom, top, width, height, edge: width - room,
    x: x => ROOM.left + (x - left) / (right - left) * wide, y: y => ROOM.top + (top - y) / (top - bottom) * tall,
  };
}

const spot = (scale, x, y) => `${scale.x(x).toFixed(1)},${scale.y(y).toFixed(1)}`;

function pathOf(scale, xs, ys) {
  const points = xs.map((x, n) => [x, ys[n]]).filter(([, y]) => Number.isFinite(y));
  return points.length ? "M" + points.map(([x, y]) => spot(scale, x, y)).join("L") : "";
}

function areaOf(scale, { x, low, high }) {
  const kept = x.map((_, n) => n).filter(n => Number.isFinite(low[n]));
  if (kept.length < 2) return "";
  const there = kept.map(n => spot(scale, x[n], high[n]));
  const back = kept.reverse().map(n => spot(scale, x[n], low[n]));
  return "M" + [...there, ...back].join("L") + "Z";
}

// Marker shapes by matplotlib's letters, around 0,0.
function markPath(marker, size = 4) {
  const polygon = (count, turn) => "M" + Array.from({ length: count }, (_, n) => {
    const angle = (turn + n / count) * 2 * Math.PI;
    return `${(size * 1.2 * Math.sin(angle)).toFixed(1)},${(-size * 1.2 * Math.cos(angle)).toFixed(1)}`;
  }).join("L") + "Z";
  const sides = { "^": [3, 0], v: [3, 0.5], "<": [3, 0.75], ">": [3, 0.25], s: [4, 0.125],
    D: [4, 0], p: [5, 0], h: [6, 0] }[marker];
  if (sides) return polygon(...sides);
  if (marker === "o") return `M${-size},0a${size},${size} 0 1,0 ${2 * size},0a${size},${size} 0 1,0 ${-2 * size},0Z`;
  const arm = size * 1.2, thin = size * 0.4, plus =
    `M${-thin},${-arm}H${thin}V${-thin}H${arm}V${thin}H${thin}V${arm}H${-thin}V${thin}H${-arm}V${-thin}H${-thin}Z`;
  return plus;
}

function marks(layer, scale, { x, y }, group) {
  const step = Math.max(1, Math.ceil(x.length / 12));
  x.forEach((value, n) => {
    if (n % step && n !== x.length - 1) return;
    const turn = group.marker === "X" || group.marker === "*" ? " rotate(45)" : "";
    draw(layer, "path", { class: "mark", d: markPath(group.marker, 3.2),
      transform: `translate(${spot(scale, value, y[n])})${turn}` });
  });
}

function axes(svg, scale, { metric, axis, less }) {
  const { height } = scale, floor = height - ROOM.bottom;
  const across = ticks(scale.left, scale.right, (scale.edge - ROOM.left) / 80);
  for (const y of ticks(scale.bottom, scale.top, height / 60)) {
    draw(svg, "line", { class: less && y === 0 ? "frame" : "grid", x1: ROOM.left, x2: scale.edge, y1: scale.y(y), y2: scale.y(y) });
    draw(svg, "text", { x: ROOM.left - 8, y: scale.y(y) + 4, "text-anchor": "end" }, say(y));
  }
  for (const x of across) {
    draw(svg, "line", { class: "frame", x1: scale.x(x), x2: scale.x(x), y1: floor, y2: floor + 5 });
    draw(svg, "text", { x: scale.x(x), y: floor + 19, "text-anchor": "middle" }, say(x));
  }
  draw(svg, "line", { class: "frame", x1: ROOM.left, x2: scale.edge, y1: floor, y2: floor });
  draw(svg, "text", { class: "title", x: ROOM.left, y: 16 }, titleOf({ metric, less }));
  draw(svg, "text", { class: "title", x: scale.edge, y: height - 6, "text-anchor": "end" }, axis.label);
}

const titleOf = ({ metric, less }) => labelOf(metric) + (less ? `, less that of ${less}` : "");
const labelOf = metric => metric.label + (metric.of === "rounds" ? ", each round" : ", judged versions");

function layerOf(svg, { group, runs, mean, place }, scale, { singles, band }) {
  const layer = draw(svg, "g", { class: "ink", "data-group": place, style: `--c:${group.colour}` });
  if (band) draw(layer, "path", { class: "area", d: areaOf(scale, mean) });
  if (singles || !mean.x.length)
    for (const run of runs)
      draw(layer, "path", { class: "single", d: pathOf(scale, run.x, run.y), "data-seed": run.seed });
  draw(layer, "path", { class: "mean", d: pathOf(scale, mean.x, mean.y), "stroke-dasharray": group.dash });
  marks(layer, scale, mean, group);
}

function redraw() {
  const wanted = choice(), box = get("chart"), places = matching(wanted);
  const single = curvesOf(places.filter(place => isShown(place, places)), wanted);
  const isPaired = wanted.less && single.length > 1, shown = isPaired ? pairedCurves(single) : single;
  wanted.less = isPaired ? baseOf(single).group.title : "";
  get("paired").disabled = single.length < 2 || wanted.axis.measured;
  const width = Math.max(260, box.clientWidth), height = Math.round(Math.min(460, 220 + width * 0.25));
  box.replaceChildren();
  legend(places, single);
  if (!isBandChosen) get("band").checked = wanted.band = hasBands(shown);
  const svg = draw(box, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `${titleOf(wanted)} over ${wanted.axis.label}: ${shown.length} conditions` });
  drawn = null;
  if (!shown.length) {
    draw(svg, "text", { x: 20, y: 40 }, places.length ? "every condition is hidden"
      : `no condition here has ${wanted.metric.label} over ${wanted.axis.label}`);
    return read(null);
  }
  const names = labelled(shown, width), right = ROOM.right + (names ? names.width : 0);
  const scale = scales(shown, wanted, { width, height, right });
  axes(svg, scale, wanted);
  for (const curve of shown) layerOf(svg, curve, scale, wanted);
  if (names) drawLabels(svg, shown, names, scale);
  drawn = { svg, scale, shown, wanted };
  read(cursor);
  get("drawn").textContent = describe(shown, places, wanted);
}

// What is drawn, in words that also a reader has who does not see it.
function describe(shown, places, { axis, less }) {
  const level = `${Math.round(100 * DATA.level)}% t intervals`;
  const lines = less ? `Lines are means of the differences to ${less}, in pairs of seeds`
    : axis.measured ? "Points are judged versions: means over seeds of both numbers"
      : "Lines are means over seeds, as far as all of them measured";
  return `${shown.length} of ${places.length} conditions. ${lines}; bands are ${level} at each point, of shares on log odds.`;
}
