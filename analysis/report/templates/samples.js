// Some samples of one run: of a round that was trained on, of all of them, or of the last evaluation.
const ALL_ROUNDS = "all rounds";
const ORDERS = {
  "as written": () => 0,
  "highest reward first": (a, b) => b.reward - a.reward,
  "lowest reward first": (a, b) => a.reward - b.reward,
  "longest first": (a, b) => b.length - a.length,
  "shortest first": (a, b) => a.length - b.length,
};
// Numbers of a sample that can have bounds. A reward is compared as it is shown.
const RANGES = {
  reward: one => one.reward === null ? undefined : +one.reward.toPrecision(3),
  tokens: one => one.tokens,
  turns: one => one.num_turns,
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
  const every = rounds.flatMap(round => round.samples.map(one => ({ ...one, round: round.name })));
  const isInside = ranges(every);
  get("sample-count").textContent = "";
  if (!rounds.length) return void write(box, "p", "No condition that is shown has samples.", { class: "quiet" });
  const wanted = get("sample-text").value.toLowerCase();
  const found = every
    .filter(one => `${one.prompt}\n${one.response}`.toLowerCase().includes(wanted) && isInside(one))
    .sort(ORDERS[get("sample-order").value]);
  get("sample-count").textContent = `${found.length} of ${every.length} samples`;
  if (!found.length) write(box, "p", "No sample of these rounds has this text and these numbers.", { class: "quiet" });
  for (const one of found) sampleCard(box, one, rounds.length > 1);
}

// Whether a sample lies within the bounds. Ranges of numbers that none of these samples has are hidden, and hold for none.
function ranges(every) {
  const bounds = [];
  for (const [name, of] of Object.entries(RANGES)) {
    const box = get(`sample-${name}`);
    box.hidden = !every.some(one => of(one) !== undefined);
    if (box.hidden) continue;
    const [from, to] = ["from", "to"].map(end => get(`sample-${name}-${end}`).valueAsNumber);
    if (!Number.isNaN(from)) bounds.push(one => of(one) >= from);
    if (!Number.isNaN(to)) bounds.push(one => of(one) <= to);
  }
  return one => bounds.every(isKept => isKept(one));
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
