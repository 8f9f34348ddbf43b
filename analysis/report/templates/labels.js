// Names at the ends of lines, so that a chart is read without its legend.
const LABEL = { most: 8, narrowest: 560, letter: 6.4, line: 15, room: 26, longest: 30 };

function elided(text) {
  if (text.length <= LABEL.longest) return text;
  const half = (LABEL.longest - 1) / 2;
  return `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}`;
}

// The names of these lines and the width that they need; null where there is no room for them.
function labelled(shown, width) {
  if (shown.length > LABEL.most || width < LABEL.narrowest) return null;
  const names = shown.map(({ group }) => elided(group.title));
  return { names, width: LABEL.room + LABEL.letter * Math.max(...names.map(name => name.length)) };
}

function drawLabels(svg, shown, { names }, scale) {
  const placed = shown.map(({ group, place, mean }, n) => {
    const last = mean.y.length - 1;
    return last < 0 ? null : { group, place, name: names[n], x: scale.x(mean.x[last]), y: scale.y(mean.y[last]), at: scale.y(mean.y[last]) };
  }).filter(Boolean).sort((one, other) => one.y - other.y);
  // Downwards where they would overlap, then up again from the floor.
  placed.forEach((label, n) => { if (n) label.at = Math.max(label.at, placed[n - 1].at + LABEL.line); });
  let floor = scale.height - ROOM.bottom + 4;
  for (const label of [...placed].reverse()) { label.at = Math.min(label.at, floor); floor = label.at - LABEL.line; }
  for (const { group, place, name, x, y, at } of placed) {
    const layer = draw(svg, "g", { class: "ink label", "data-label": place, style: `--c:${group.colour}` });
    draw(layer, "path", { class: "leader", d: `M${(x + 6).toFixed(1)},${y.toFixed(1)}L${scale.edge + 6},${at.toFixed(1)}H${scale.edge + 16}` });
    draw(layer, "text", { x: scale.edge + 20, y: at + 4 }, name);
  }
}
