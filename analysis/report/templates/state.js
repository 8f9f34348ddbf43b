const DATA = JSON.parse(document.getElementById("data").textContent);
const get = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
// So many conditions are shown at first; more hide each other.
const FIRST = 8;

// Columns are stored once, and runs name them by their number.
for (const group of DATA.groups)
  for (const run of group.runs)
    for (const of of ["versions", "rounds"])
      for (const name in run[of]) run[of][name] = DATA.pool[run[of][name]];

// Conditions that were chosen in the legend; null: the first ones.
let picked = null;
function isShown(place, places) {
  if (picked) return picked.has(place);
  // Without a filter, what is compared first by itself.
  const first = passing === null ? DATA.first.filter(one => places.includes(one)) : [];
  return first.length ? first.includes(place) : places.indexOf(place) < FIRST;
}

// The filters: a question with its conditions, and words that a condition or one of its runs has.
const words = () => get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
const hasAll = (text, wanted) => wanted.every(word => text.includes(word));
const asked = () => DATA.questions[get("question").value];

let rowTexts = null;
function textsOf() {
  if (rowTexts) return rowTexts;
  rowTexts = new Map();
  for (const row of document.querySelectorAll("#runs tbody tr[data-run]"))
    rowTexts.set(row, [...row.cells].map(cell => cell.querySelector("pre") ? "" : cell.textContent)
      .join(" ").toLowerCase());
  return rowTexts;
}

let passing = null;  // The numbers of the conditions that pass; null: all.
function findPassing() {
  const question = asked(), wanted = words();
  passing = question || wanted.length ? new Set(question ? question.groups : DATA.groups.keys()) : null;
  if (!wanted.length) return;
  const found = new Set();
  DATA.groups.forEach((group, place) => {
    const text = `${group.title} ${group.condition} ${group.sweep} ${DATA.envs[group.env]}`.toLowerCase();
    if (hasAll(text, wanted)) found.add(place);
  });
  for (const [row, text] of textsOf())
    if (row.dataset.group && hasAll(text, wanted)) found.add(+row.dataset.group);
  passing = new Set([...passing].filter(place => found.has(place)));
}
const passes = place => passing === null || passing.has(place);

// The ranges of numbers that samples are found by, and the fields of their bounds: from, to.
const RANGES = [...document.querySelectorAll("#sample-choice .range")]
  .map(box => ({ box, key: box.dataset.key, fields: [...box.querySelectorAll("input")] }));
const BOUNDS = RANGES.flatMap(one => one.fields.map(field => field.id));

// The view as the part of the address behind #, so that a link or the back button restores it.
// Controls that stand as they did at first are not in it.
const CONTROLS = ["question", "filter", "metric", "axis", "env", "singles", "band", "paired", "log", "sample-run", "sample-round", "sample-order", "sample-text", ...BOUNDS];
const NAMES = { metric: n => `${DATA.metrics[n].of}:${DATA.metrics[n].id}`, axis: n => DATA.axes[n].id,
  env: n => DATA.envs[n], question: n => n === "" ? "" : DATA.questions[n].text };
let firsts = {}, lastWritten = null;

function valueOf(id) {
  const control = get(id);
  if (!control) return "";
  if (control.type === "checkbox") return control.checked ? "1" : "0";
  return NAMES[id] && control.value !== "" ? NAMES[id](control.value) : control.value;
}

function setValue(id, text) {
  const control = get(id);
  if (!control) return;
  if (control.type === "checkbox") control.checked = text === "1";
  else if (control.tagName === "SELECT") {
    const found = [...control.options].find(option => (NAMES[id] && option.value !== "" ? NAMES[id](option.value) : option.value) === text);
    if (found) control.value = found.value;
  } else control.value = text;
}

function address(at) {
  const parts = new URLSearchParams();
  for (const id of CONTROLS)
    if (id === "band" ? isBandChosen : valueOf(id) !== firsts[id]) parts.set(id, valueOf(id));
  if (picked) parts.set("show", [...picked].map(place => DATA.groups[place].title).join("|"));
  if (theme !== "system") parts.set("theme", theme);
  if (at) parts.set("at", at);
  return parts.toString();
}

// isNew: whether the back button leads to the view before.
function remember(isNew = true, at = "") {
  lastWritten = address(at);
  if (decodeURIComponent(location.hash.slice(1)) === decodeURIComponent(lastWritten)) return;
  if (isNew) location.hash = lastWritten;
  else location.replace(`#${lastWritten}`);
}

function restore() {
  const text = location.hash.slice(1);
  if (text === lastWritten) return;
  lastWritten = text;
  const parts = new URLSearchParams(text.includes("=") ? text : "");
  if (text && !text.includes("=")) return;  // A plain link to a part of the page.
  for (const id of CONTROLS) {
    if (id === "sample-round") sampleRounds();
    setValue(id, parts.get(id) ?? firsts[id]);
  }
  const titles = parts.get("show")?.split("|");
  isBandChosen = parts.has("band");
  picked = titles ? new Set(DATA.groups.map((_, n) => n).filter(n => titles.includes(DATA.groups[n].title))) : null;
  if (THEMES.includes(parts.get("theme"))) theme = parts.get("theme");
  paint(theme);
  refresh();
  document.getElementById(parts.get("at") ?? "")?.scrollIntoView();
}

// Everything that the filters change.
function refresh() {
  cursor = null;
  findPassing();
  filterPage();
  if (isDrawable) redraw();
  showSamples();
}
