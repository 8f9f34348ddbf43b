// Some samples of one run: of a round that was trained on, of all of them, or of the last evaluation.
const ALL_ROUNDS = "all rounds";
const ORDERS = {
  "as written": () => 0,
  "highest reward first": (a, b) => b.reward - a.reward,
  "lowest reward first": (a, b) => a.reward - b.reward,
  "longest first": (a, b) => sizeOf(b) - sizeOf(a),
  "shortest first": (a, b) => sizeOf(a) - sizeOf(b),
};
// Judged samples have no tokens; no order has both kinds.
const sizeOf = one => one.tokens ?? one.characters;
const turnText = turn => (turn.tokens ?? []).join("") + (turn.text ?? "");
const textOf = one => [one.prompt, one.response ?? "", ...(one.turns ?? []).map(turnText)].join("\n");
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
    .filter(one => textOf(one).toLowerCase().includes(wanted) && isInside(one))
    .sort(ORDERS[get("sample-order").value]);
  get("sample-count").textContent = `${found.length} of ${every.length} samples`;
  if (!found.length) write(box, "p", "No sample of these rounds has this text and these numbers.", { class: "quiet" });
  for (const one of found) sampleCard(box, one, rounds.length > 1);
}

// Whether a sample lies within the bounds. Ranges of numbers that none of these samples has are hidden, and hold for none.
function ranges(every) {
  const bounds = [];
  for (const { box, key, fields: [from, to] } of RANGES) {
    const isShort = from.step === "any";  // As it is shown.
    const of = one => one[key] == null ? undefined : isShort ? +one[key].toPrecision(3) : one[key];
    box.hidden = !every.some(one => of(one) !== undefined);
    if (box.hidden) continue;
    if (from.value !== "") bounds.push(one => of(one) >= from.valueAsNumber);
    if (to.value !== "") bounds.push(one => of(one) <= to.valueAsNumber);
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
    const turns = name === "response" ? one.turns : undefined;
    if (!(name in one || turns)) continue;
    write(card, "h3", name);
    if (turns) turns.forEach(turn => turnLine(card, turn, one.number));
    else write(card, "p", one[name], { class: `text ${name}` });
  }
}

// A text of a sample: who wrote it, and its tokens, whose numbers are shown where a reader points at them.
function turnLine(card, turn, round) {
  const line = write(card, "p", undefined, { class: `text turn ${turn.writer}` });
  const who = write(line, "span", turn.about, { class: "writer" });
  if (turn.reward !== undefined) who.textContent += `, reward ${say(turn.reward)}`;
  const box = write(line, "span");
  turn.tokens?.forEach((text, place) => tokenSpan(box, turn, text, place, round));
  if (turn.text) write(box, "span", turn.tokens ? turn.text.trimEnd() : turn.text.trim());
}

const versionAt = (turn, place) => Array.isArray(turn.versions) ? turn.versions[place] : turn.versions;

function tokenSpan(box, turn, text, place, round) {
  const span = write(box, "span", text, { class: "token" });
  const named = `token ${JSON.stringify(text)}`;
  if (!turn.logps) return void (span.title = `${named}\nof the ${turn.writer}: no log-prob, no version, not in the loss`);
  const version = versionAt(turn, place), logp = turn.logps[place];
  if (place && version !== versionAt(turn, place - 1)) span.classList.add("switch");
  const age = version < 0 ? "written by no version of the run" : `version ${version}, lag ${plural(round - version, "round")}`;
  span.title = `${named}\nlog-prob ${logp === null ? "unknown" : logp}\n${age}`;
}

const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
