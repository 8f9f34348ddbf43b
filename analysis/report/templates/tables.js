// Tables are sorted by their heads: numbers by their size, what has none at the end.
function keyOf(row, column) {
  const cell = row.cells[column], value = cell.dataset.value;
  const number = value === undefined || value === "" ? NaN : Number(value);
  return { number, isNumber: value !== undefined, text: cell.textContent.trim() };
}

function compare(one, other, sign) {
  if (!one.isNumber) return sign * one.text.localeCompare(other.text, "en", { numeric: true });
  const lacking = Number.isNaN(one.number) - Number.isNaN(other.number);
  return lacking || (Number.isNaN(one.number) ? 0 : sign * (one.number - other.number));
}

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const isUp = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, n) => head.setAttribute("aria-sort", n !== column ? "none" : isUp ? "ascending" : "descending"));
  const rows = [...body.rows].map(row => [keyOf(row, column), row]);
  rows.sort(([one], [other]) => compare(one, other, isUp ? 1 : -1));
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable"))
  [...table.tHead.rows[0].cells].forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => sort(table, column)));

// Runs that have every word that is asked for, in any column.
function filter() {
  const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.querySelectorAll("#runs tbody tr[data-run]")];
  for (const row of rows) {
    const text = [...row.cells].map(cell => cell.querySelector("pre") ? "" : cell.textContent).join(" ").toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
  const left = rows.filter(row => !row.hidden).length;
  get("shown").textContent = words.length ? `${left} of ${rows.length} runs` : "";
}
get("filter").addEventListener("input", filter);

// A config is written out when it is opened, what the run has of its own set apart.
function config(box) {
  const own = DATA.configs.own[box.dataset.run], all = { ...DATA.configs.common, ...own };
  const place = box.querySelector("pre");
  if (place.childNodes.length) return;
  for (const key of Object.keys(all).sort()) {
    if (all[key] === null) continue;
    write(place, key in own ? "mark" : "span", `${key}: ${all[key]}`);
    place.append("\n");
  }
}
for (const box of document.querySelectorAll("details.config"))
  box.addEventListener("toggle", () => box.open && config(box));

// The system's colours, or light or dark ones; kept where the browser lets a page keep things.
const THEMES = ["system", "light", "dark"];
const KEPT = "rlhf-lab-report-colours";

function kept(value) {
  try {
    return value === undefined ? localStorage.getItem(KEPT) : localStorage.setItem(KEPT, value);
  } catch {
    return null;  // Files that are opened from a disk may have no storage.
  }
}

function paint(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  get("theme").textContent = `colours: ${theme}`;
  get("theme").setAttribute("aria-label", `colours: ${theme}; press for others`);
}

let theme = THEMES.includes(kept()) ? kept() : "system";
paint(theme);
get("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  kept(theme);
  paint(theme);
});
