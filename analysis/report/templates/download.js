// What is shown as CSV files: the numbers of the chart, or the rows of a table.
function save(rows, part) {
  const link = document.createElement("a"), name = `${document.title} ${part}`.toLowerCase();
  link.href = URL.createObjectURL(new Blob([csvText(rows)], { type: "text/csv" }));
  link.download = name.replace(/[^a-z0-9.]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 80) + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A text that a spreadsheet would take for a formula begins with an apostrophe.
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = String(value ?? "").replace(/^(?:[=@\t\r]|[+-](?!\d))/, "'$&");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = rows => rows.map(row => row.map(csvCell).join(",")).join("\n") + "\n";

// The means that are drawn, and the single seeds where these are drawn.
function curveRows() {
  const { shown, wanted } = drawn;
  const rows = [["sweep", "environment", "condition", "seed", "n", wanted.axis.id,
    wanted.metric.id + (wanted.less ? ` less ${wanted.less}` : ""), "low", "high"]];
  for (const { group, runs, mean } of shown) {
    const place = [group.sweep, DATA.envs[group.env], group.condition];
    mean.x.forEach((x, n) => rows.push([...place, "mean", runs.length, x, mean.y[n], mean.low[n], mean.high[n]]));
    if (wanted.singles || !mean.x.length)
      for (const run of runs) run.x.forEach((x, n) => rows.push([...place, run.seed, 1, x, run.y[n], NaN, NaN]));
  }
  return rows;
}

// The rows of a part's tables that the filters leave, on whatever page of it they stand.
function tableRows(part) {
  const tables = [...document.querySelectorAll(`#${part} table.sortable`)];
  const heads = [...tables[0].tHead.rows[0].cells].map(head => head.textContent.trim());
  const rows = [[...(tables.length > 1 ? ["table"] : []), ...heads]];
  for (const table of tables)
    for (const row of table.tBodies[0].rows) {
      if (row.dataset.filtered) continue;
      const cells = [...row.cells].map(cell => cell.querySelector("details.config") ? "" :
        cell.textContent.trim().replace(/\s+/g, " "));
      rows.push([...(tables.length > 1 ? [table.caption.textContent] : []), ...cells]);
    }
  return rows;
}
