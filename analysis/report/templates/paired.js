// Differences to one condition in pairs of seeds: what seeds have in common drops out.
const baseOf = curves => curves.reduce((one, other) => other.group.rank < one.group.rank ? other : one);

// Each run less that of its seed, at its own points within what both measured.
function lessRun(run, base) {
  const end = base.x[base.x.length - 1], xs = run.x.filter(x => x >= base.x[0] && x <= end);
  return xs.length ? { seed: run.seed, places: xs.keys(), x: xs, y: xs.map(x => at(run, x) - at(base, x)) } : null;
}

// The other conditions less the first of them; those without a seed in common are left out.
function pairedCurves(curves) {
  const base = baseOf(curves), bySeed = new Map(base.runs.map(run => [run.seed, run]));
  return curves.filter(curve => curve !== base).map(curve => {
    const runs = curve.runs.filter(run => bySeed.has(run.seed))
      .map(run => lessRun(run, bySeed.get(run.seed))).filter(Boolean);
    return runs.length ? { ...curve, runs, mean: meanOf(runs, false, DATA.t) } : null;
  }).filter(Boolean);
}
