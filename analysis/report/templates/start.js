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
  get("theme").textContent = `Theme: ${theme}`;
}

let theme = THEMES.includes(kept()) ? kept() : "system";
paint(theme);
get("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  kept(theme);
  paint(theme);
  remember(false);
});

function options() {
  DATA.metrics.forEach((metric, n) => write(get("metric"), "option", labelOf(metric), { value: n }));
  DATA.axes.forEach((axis, n) => write(get("axis"), "option", axis.label, { value: n }));
  DATA.envs.forEach((env, n) => write(get("env"), "option", env, { value: n }));
  get("env-label").hidden = DATA.envs.length < 2;
  // The environment of what is compared first.
  const first = DATA.groups.find(group => group.rank === 0);
  if (first) get("env").value = first.env;
}

const isDrawable = DATA.metrics.length && DATA.axes.length && DATA.groups.length;

function wireChart() {
  for (const id of ["metric", "axis", "env", "singles", "band", "paired", "log"])
    get(id).addEventListener("change", () => {
      cursor = null;
      if (id === "env") picked = null;
      if (id === "band") isBandChosen = true;
      redraw();
      remember();
    });
  get("choice").addEventListener("submit", event => event.preventDefault());
  get("chart").addEventListener("pointermove", pointed);
  get("chart").addEventListener("pointerdown", pointed);
  get("chart").addEventListener("pointerleave", event => event.pointerType === "mouse" && read(null));
  get("chart").addEventListener("keydown", stepped);
  get("chart").addEventListener("blur", () => read(null));
  get("numbers").addEventListener("toggle", numberTable);
  get("save-svg").addEventListener("click", saveSvg);
  get("save-png").addEventListener("click", savePng);
  get("save-curves").addEventListener("click", () =>
    drawn && save(new Blob([csvText(curveRows())], { type: "text/csv" }), chartName("csv")));
  let width = get("chart").clientWidth;
  new ResizeObserver(() => {
    hints();
    if (get("chart").clientWidth !== width) { width = get("chart").clientWidth; redraw(); }
  }).observe(get("chart"));
}

function wireFilters() {
  DATA.questions.forEach((one, n) => write(get("question"), "option", one.text, { value: n }));
  get("question-label").hidden = !DATA.questions.length;
  get("filters").hidden = false;
  get("filters").addEventListener("submit", event => event.preventDefault());
  const changed = isNew => () => { picked = null; shownRows = PAGE; moveEnv(); refresh(); remember(isNew); };
  get("question").addEventListener("change", changed(true));
  get("filter").addEventListener("input", changed(false));
  get("clear").addEventListener("click", () => {
    get("question").value = "";
    get("filter").value = "";
    changed(true)();
  });
}

// To an environment that the question is about.
function moveEnv() {
  const question = asked();
  if (!question || !question.groups.length) return;
  const envs = question.groups.map(place => DATA.groups[place].env);
  if (!envs.includes(+get("env").value)) get("env").value = envs[0];
}

function wireRest() {
  for (const name of Object.keys(ORDERS)) if (get("sample-order")) write(get("sample-order"), "option", name, { value: name });
  for (const id of ["sample-run", "sample-round", "sample-order"])
    get(id)?.addEventListener("change", () => { showSamples(); remember(); });
  for (const id of ["sample-text", ...BOUNDS])
    get(id)?.addEventListener("input", () => { showSamples(); remember(false); });
  get("sample-choice")?.addEventListener("submit", event => event.preventDefault());
  get("more-runs").addEventListener("click", () => { shownRows += PAGE; filterPage(); });
  for (const button of document.querySelectorAll("button[data-table]"))
    button.addEventListener("click", () => save(
      new Blob([csvText(tableRows(button.dataset.table))], { type: "text/csv" }), fileName(button.dataset.table, "csv")));
  for (const link of document.querySelectorAll("nav a"))
    link.addEventListener("click", event => {
      event.preventDefault();
      const part = link.hash.slice(1);
      get(part).scrollIntoView();
      remember(true, part);
    });
  addEventListener("hashchange", restore);
  addEventListener("beforeprint", () => {
    for (const box of document.querySelectorAll("details.asked")) box.open = true;
  });
}

if (isDrawable) {
  options();
  wireChart();
} else {
  get("choice").hidden = get("curve-tools").hidden = get("numbers").hidden = true;
  get("chart").textContent = "No run that counts has a number to draw.";
}
wireFilters();
wireRest();
findPassing();
showSamples();
for (const id of CONTROLS) firsts[id] = valueOf(id);
if (location.hash.includes("=")) restore(); else refresh();
performance.mark("drawn");
