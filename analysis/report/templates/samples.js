// Some samples of one run: of a round that was trained on, or of the last evaluation.
const sampled = () => DATA.samples[get("sample-run")?.value];

function sampleRuns() {
  const choice = get("sample-run"), before = choice.value;
  choice.replaceChildren();
  DATA.samples.forEach((one, n) => {
    if (passes(one.group)) write(choice, "option", `${one.title}, seed ${one.seed}`, { value: n });
  });
  if ([...choice.options].some(option => option.value === before)) choice.value = before;
}

function sampleRounds() {
  if (!get("sample-run")) return;
  const choice = get("sample-round"), before = choice.value;
  choice.replaceChildren();
  for (const round of sampled()?.rounds ?? []) write(choice, "option", round.name, { value: round.name });
  if ([...choice.options].some(option => option.value === before)) choice.value = before;
}

function showSamples() {
  if (!get("sample-run")) return;
  const run = get("sample-run").value, round = get("sample-round").value;
  sampleRuns();
  if (run) get("sample-run").value = run;
  if (!get("sample-run").value) get("sample-run").selectedIndex = 0;
  sampleRounds();
  if (round && [...get("sample-round").options].some(option => option.value === round)) get("sample-round").value = round;
  const box = get("sample-list"), found = sampled()?.rounds.find(one => one.name === get("sample-round").value);
  box.replaceChildren();
  if (!found) return void write(box, "p", "No condition that is shown has samples.", { class: "quiet" });
  for (const one of found.samples) sampleCard(box, one);
}

function sampleCard(box, one) {
  const card = write(box, "article", undefined, { class: "sample" });
  const facts = write(card, "dl");
  for (const [name, value] of one.facts) {
    const fact = write(facts, "div");
    write(fact, "dt", name);
    write(fact, "dd", typeof value === "number" ? say(value) : value);
  }
  for (const name of ["prompt", "response", "reference"]) {
    if (!(name in one)) continue;
    write(card, "h3", name);
    write(card, "p", one[name], { class: `text ${name}` });
  }
}
