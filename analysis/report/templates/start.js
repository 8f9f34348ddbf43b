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
  get("choice").addEventListener("change", ({ target }) => {
    cursor = null;
    if (target.id === "env") picked = null;
    if (target.id === "band") isBandChosen = true;
    redraw();
  });
  get("choice").addEventListener("submit", event => event.preventDefault());
  get("chart").addEventListener("pointermove", pointed);
  get("chart").addEventListener("pointerdown", pointed);
  get("chart").addEventListener("pointerleave", event => event.pointerType === "mouse" && read(null));
  get("chart").addEventListener("keydown", stepped);
  get("chart").addEventListener("blur", () => read(null));
  get("save-curves").addEventListener("click", () =>
    drawn && save(curveRows(), `${drawn.wanted.metric.id} ${drawn.wanted.axis.id}`));
  let width = get("chart").clientWidth;
  new ResizeObserver(() => {
    if (get("chart").clientWidth !== width) { width = get("chart").clientWidth; redraw(); }
  }).observe(get("chart"));
}

function wireFilters() {
  DATA.questions.forEach((one, n) => write(get("question"), "option", one.text, { value: n }));
  get("question-label").hidden = !DATA.questions.length;
  get("filters").hidden = false;
  get("filters").addEventListener("submit", event => event.preventDefault());
  const changed = () => { picked = null; shownRows = PAGE; moveEnv(); refresh(); };
  get("question").addEventListener("change", changed);
  get("filter").addEventListener("input", changed);
  get("clear").addEventListener("click", () => {
    get("question").value = "";
    get("filter").value = "";
    changed();
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
  if (get("sample-choice")) {
    fill(get("sample-order"), Object.keys(ORDERS).map(name => [name, name]));
    get("sample-choice").addEventListener("input", showSamples);
    get("sample-choice").addEventListener("submit", event => event.preventDefault());
  }
  get("more-runs").addEventListener("click", () => { shownRows += PAGE; filterPage(); });
  for (const button of document.querySelectorAll("button[data-table]"))
    button.addEventListener("click", () => save(tableRows(button.dataset.table), button.dataset.table));
  addEventListener("beforeprint", () => {
    for (const box of document.querySelectorAll("details.asked")) box.open = true;
  });
}

if (isDrawable) {
  options();
  wireChart();
} else {
  get("choice").hidden = get("curve-tools").hidden = true;
  get("chart").textContent = "No run that counts has a number to draw.";
}
wireFilters();
wireRest();
refresh();
performance.mark("drawn");
