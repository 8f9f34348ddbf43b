// What is shown as files: a chart as SVG or PNG, its numbers or a table as CSV.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-family", "text-anchor"];
const SCALE = 2;

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (part, kind) =>
  `${document.title} ${part}`.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 80) + `.${kind}`;

// Any colour that CSS has as one that every program reads.
function plainColour(text, context) {
  if (!text || text === "none") return text;
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = text;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue] = context.getImageData(0, 0, 1, 1).data;
  return `rgb(${red},${green},${blue})`;
}

// The drawing with its styles in it, and its legend where lines have no names.
function svgText() {
  const { svg, scale, shown } = drawn, copy = svg.cloneNode(true);
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, n) => {
    const style = getComputedStyle(originals[n]);
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      node.setAttribute(name, name === "fill" || name === "stroke" ? plainColour(value, context) : value);
    }
    node.removeAttribute("class");
    node.removeAttribute("style");
  });
  const rows = svg.querySelector(".label") ? [] : shown, body = getComputedStyle(document.body);
  const height = scale.height + 18 * rows.length;
  const text = plainColour(body.color, context);
  rows.forEach(({ group, runs }, n) => {
    const y = scale.height + 18 * n + 6;
    draw(copy, "path", { d: `M${ROOM.left},${y}h30`, stroke: group.colour, "stroke-width": 2, "stroke-dasharray": group.dash });
    draw(copy, "path", { d: markPath(group.marker, 3.5), fill: group.colour, transform: `translate(${ROOM.left + 15},${y})` });
    draw(copy, "text", { x: ROOM.left + 38, y: y + 4, fill: text, "font-size": "12px", "font-family": body.fontFamily }, `${group.title}, n=${runs.length}`);
  });
  const back = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: plainColour(body.backgroundColor, context) })) back.setAttribute(key, value);
  copy.prepend(back);
  for (const [key, value] of Object.entries({ xmlns: SVG, width: scale.width, height, viewBox: `0 0 ${scale.width} ${height}` })) copy.setAttribute(key, value);
  return { text: new XMLSerializer().serializeToString(copy), width: scale.width, height };
}

const chartName = kind => fileName(`${drawn.wanted.metric.id} ${drawn.wanted.axis.id}`, kind);

function saveSvg() {
  if (drawn) save(new Blob([svgText().text], { type: "image/svg+xml" }), chartName("svg"));
}

async function pngBlob() {
  const { text, width, height } = svgText(), picture = new Image();
  const place = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  picture.src = place;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = SCALE * width;
  canvas.height = SCALE * height;
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(place);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}

async function savePng() {
  if (drawn) save(await pngBlob(), chartName("png"));
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
