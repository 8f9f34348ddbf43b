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

// The filters: a question with its conditions, and words that a run's row has.
const words = () => get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
const hasAll = (text, wanted) => wanted.every(word => text.includes(word));
const asked = () => DATA.questions[get("question").value];
const runRows = () => [...document.querySelectorAll("#runs tbody tr[data-run]")];
const TEXTS = new Map(runRows().map(row =>
  [row, [...row.cells].map(cell => cell.querySelector("pre") ? "" : cell.textContent).join(" ").toLowerCase()]));

let left = [];       // The rows of runs that pass.
let passing = null;  // The numbers of the conditions that pass, which have such a run; null: all.
const passes = place => passing === null || passing.has(place);
function findPassing() {
  const question = asked(), wanted = words();
  left = runRows().filter(row =>
    (!question || question.groups.includes(Number(row.dataset.group))) && hasAll(TEXTS.get(row), wanted));
  passing = question || wanted.length ? new Set(left.map(row => Number(row.dataset.group))) : null;
}

// Everything that the filters change.
function refresh() {
  cursor = null;
  findPassing();
  filterPage();
  if (isDrawable) redraw();
  showSamples();
}
