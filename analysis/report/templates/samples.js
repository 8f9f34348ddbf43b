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
const textOf = one => [one.prompt, one.response ?? "", ...(one.turns ?? []).map(turn => turn.text)].join("\n");
const sampled = () => DATA.samples[get("sample-run").value];

// The options of a choice, of which the chosen one stays where it can.
function fill(choice, options) {
  const before = choice.value;
  choice.replaceChildren();
  for (const [value, text] of options) write(choice, "option", text, { value });
  if (options.some(([value]) => String(value) === before)) choice.value = before;
}

function showSamples() {
  if (!get("sample-run")) return;
  const runs = DATA.samples.map((one, n) => [n, `${one.title}, seed ${one.seed}`]);
  fill(get("sample-run"), runs.filter(([n]) => passes(DATA.samples[n].group)));
  const names = (sampled()?.rounds ?? []).map(round => round.name);
  fill(get("sample-round"), [...names, ...(names.length > 1 ? [ALL_ROUNDS] : [])].map(name => [name, name]));
  const box = get("sample-list"), rounds = chosenRounds();
  box.replaceChildren();
  const every = rounds.flatMap(round => round.samples.map(one => ({ ...one, round: round.name })));
  get("sample-count").textContent = "";
  if (!rounds.length) return void write(box, "p", "No condition that is shown has samples.", { class: "quiet" });
  const wanted = get("sample-text").value.toLowerCase();
  const found = every
    .filter(one => textOf(one).toLowerCase().includes(wanted))
    .sort(ORDERS[get("sample-order").value]);
  get("sample-count").textContent = `${found.length} of ${every.length} samples`;
  if (!found.length) write(box, "p", "No sample of these rounds has this text.", { class: "quiet" });
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
    const turns = name === "response" ? one.turns : undefined;
    if (!(name in one || turns)) continue;
    write(card, "h3", name);
    if (!turns) write(card, "p", one[name], { class: `text ${name}` });
    for (const turn of turns ?? []) {
      const line = write(card, "p", undefined, { class: `text turn ${turn.writer}` });
      write(line, "span", turn.about + (turn.reward === undefined ? "" : `, reward ${say(turn.reward)}`), { class: "writer" });
      write(line, "span", turn.text.trim());
    }
  }
}
