// Tables are sorted by their heads: numbers by their size, what has none at the end.
function keyOf(row, column) {
  const cell = row.cells[column], value = cell.dataset.value;
  return value === undefined ? cell.textContent.trim() : value === "" ? NaN : Number(value);
}

function compare(one, other, sign) {
  if (typeof one === "string") return sign * one.localeCompare(other, "en", { numeric: true });
  return Number.isNaN(one) - Number.isNaN(other) || sign * (one - other) || 0;
}

function sort(table, column) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const isUp = heads[column].getAttribute("aria-sort") !== "ascending";
  heads.forEach((head, n) => head.setAttribute("aria-sort", n !== column ? "none" : isUp ? "ascending" : "descending"));
  const rows = [...body.rows].map(row => [keyOf(row, column), row]);
  rows.sort(([one], [other]) => compare(one, other, isUp ? 1 : -1));
  body.append(...rows.map(([, row]) => row));
  findPassing();
  filterPage();
}

for (const table of document.querySelectorAll("table.sortable"))
  [...table.tHead.rows[0].cells].forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => sort(table, column)));

// Long tables show some of their rows, and more on demand.
const PAGE = 100;
let shownRows = PAGE;

// Every part of the page shows what the filters leave.
function filterPage() {
  const question = asked(), wanted = words();
  for (const box of document.querySelectorAll("[data-question]")) {
    box.hidden = question !== undefined && box.dataset.question !== question.text;
    if (question && box.dataset.question === question.text && box.tagName === "DETAILS") box.open = true;
    for (const card of box.querySelectorAll("article.answer"))
      card.hidden = wanted.length > 0 && !hasAll(card.textContent.toLowerCase(), wanted);
  }
  for (const one of document.querySelectorAll("#timelines figure, #results tr[data-group]")) {
    const isOut = !passes(+one.dataset.group);
    one.hidden = isOut;
    if (isOut) one.dataset.filtered = "1"; else delete one.dataset.filtered;
  }
  filterRuns();
  get("clear").hidden = passing === null;
  const groups = DATA.groups.filter((_, place) => passes(place)).length;
  get("shown").textContent = passing === null
    ? "" : `${left.length} of ${TEXTS.size} runs, ${groups} of ${DATA.groups.length} conditions`;
}

function filterRuns() {
  for (const row of TEXTS.keys()) row.hidden = row.dataset.filtered = true;
  for (const row of left) delete row.dataset.filtered;
  for (const row of left.slice(0, shownRows)) row.hidden = false;
  const more = get("more-runs"), rest = left.length - shownRows;
  more.hidden = rest <= 0;
  more.textContent = `show ${Math.min(rest, PAGE)} more of ${left.length} runs`;
}

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

