// Some samples of one run: of a round that was trained on, of all of them, or of the last evaluation.
const ALL_ROUNDS = "all rounds";
const ORDERS = {
  "as written": () => 0,
  "highest reward first": (a, b) => b.reward - a.reward,
  "lowest reward first": (a, b) => a.reward - b.reward,
  "longest first": (a, b) => b.length - a.length,
  "shortest first": (a, b) => a.length - b.length,
};
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
  if (choice.options.length > 1) write(choice, "option", ALL_ROUNDS, { value: ALL_ROUNDS });
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
  const box = get("sample-list"), rounds = chosenRounds();
  box.replaceChildren();
  if (!rounds.length) return void write(box, "p", "No condition that is shown has samples.", { class: "quiet" });
  const wanted = get("sample-text").value.toLowerCase();
  const found = rounds.flatMap(round => round.samples.map(one => ({ ...one, round: round.name })))
    .filter(one => `${one.prompt}\n${one.response}`.toLowerCase().includes(wanted))
    .sort(ORDERS[get("sample-order").value]);
  if (!found.length) write(box, "p", "No sample that is shown has this text.", { class: "quiet" });
  for (const one of found) sampleCard(box, one, rounds.length > 1);
}

function chosenRounds() {
  const name = get("sample-round").value, rounds = sampled()?.rounds ?? [];
  // The last evaluation is scored by the judge, whose points are no rewards of rounds.
  if (name === ALL_ROUNDS) return rounds.filter(round => round.name.startsWith("round"));
  return rounds.filter(round => round.name === name);
}

function sampleCard(box, one, isOfMany) {
  const card = write(box, "article", undefined, { class: "sample" });
  const facts = write(card, "dl");
  for (const [name, value] of isOfMany ? [["of", one.round], ...one.facts] : one.facts) {
    const fact = write(facts, "div");
    write(fact, "dt", name);
    write(fact, "dd", typeof value === "number" ? say(value) : value);
  }
  for (const name of ["prompt", "response", "reference"]) {
    if (!(name in one)) continue;
    write(card, "h3", name);
    if (name === "response" && one.turns?.length) one.turns.forEach(turn => turnLine(card, turn));
    else write(card, "p", one[name], { class: `text ${name}` });
  }
}

// A text of an episode: who wrote it, and of the policy's the reward, with tokens, versions and log-probs on hover.
function turnLine(card, turn) {
  const line = write(card, "p", undefined, { class: `text turn ${turn.writer}` });
  const who = write(line, "span", turn.writer, { class: "writer" });
  if (turn.about) {
    who.textContent += `, reward ${say(turn.reward)}`;
    line.title = turn.about;
    line.tabIndex = 0;
  }
  write(line, "span", turn.text.trim());
}
