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
  const left = filterRuns(question, wanted);
  const isFiltered = question !== undefined || wanted.length > 0;
  get("clear").hidden = !isFiltered;
  const groups = DATA.groups.filter((_, place) => passes(place)).length;
  get("shown").textContent = isFiltered
    ? `${left} of ${document.querySelectorAll("#runs tbody tr").length} runs, ${groups} of ${DATA.groups.length} conditions` : "";
  hints();
}

// Runs of the question's conditions that have every word, in any column.
function filterRuns(question, wanted) {
  const rows = [...document.querySelectorAll("#runs tbody tr[data-run]")];
  const texts = wanted.length ? textsOf() : null, places = question && new Set(question.groups);
  let left = 0;
  for (const row of rows) {
    const isIn = (!places || row.dataset.group && places.has(+row.dataset.group)) && (!texts || hasAll(texts.get(row), wanted));
    if (isIn) delete row.dataset.filtered; else row.dataset.filtered = "1";
    row.hidden = !isIn || ++left > shownRows;
  }
  const more = get("more-runs"), rest = left - shownRows;
  more.hidden = rest <= 0;
  more.textContent = `show ${Math.min(rest, PAGE)} more of ${left} runs`;
  return left;
}

// A table that is wider than its box shows so at its right edge.
function hints() {
  for (const box of document.querySelectorAll(".wide"))
    box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
}
for (const box of document.querySelectorAll(".wide")) box.addEventListener("scroll", hints, { passive: true });

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

