"use strict";

// Three significant digits, with a letter for thousands, millions and so on.
function say(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  if (size < 1000) return String(+value.toPrecision(3));
  const step = Math.min(5, Math.floor(Math.log10(size) / 3));
  return +(value / 1000 ** step).toPrecision(3) + ["", "k", "M", "G", "T", "P"][step];
}

// About `count` round numbers within low and high.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

// A curve between its points, on straight lines.
function at(curve, x) {
  let high = curve.x.findIndex(value => value >= x);
  if (high <= 0) return curve.y[Math.max(0, high)];
  const share = (x - curve.x[high - 1]) / (curve.x[high] - curve.x[high - 1]);
  return curve.y[high - 1] + share * (curve.y[high] - curve.y[high - 1]);
}

// Mean and the half-width of its t interval; no interval of one.
function centre(values, quantiles) {
  const n = values.length, mean = values.reduce((a, b) => a + b, 0) / n;
  if (n < 2) return [mean, NaN];
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1);
  return [mean, quantiles[n] * Math.sqrt(variance / n)];
}

// The points of a run that have both numbers.
function curveOf(run, of, axis, metric) {
  const xs = run[of][axis], ys = run[of][metric];
  if (!xs || !ys) return null;
  const places = xs.map((_, place) => place).filter(p => xs[p] !== null && ys[p] !== null);
  return places.length
    ? { seed: run.seed, places, x: places.map(p => xs[p]), y: places.map(p => ys[p]) } : null;
}

function alike(one, other) {
  return one.length === other.length && one.every((value, place) => value === other[place]);
}

// Where the mean over seeds is taken: at the points that all runs have, else evenly spread over
// the range that all of them measured.
function gridOf(curves) {
  if (curves.every(curve => alike(curve.x, curves[0].x))) return curves[0].x;
  const low = Math.max(...curves.map(c => c.x[0]));
  const high = Math.min(...curves.map(c => c.x[c.x.length - 1]));
  const count = Math.max(2, ...curves.map(c => c.x.length));
  return low < high ? Array.from({ length: count }, (_, n) => low + (high - low) * n / (count - 1)) : [];
}

// The ends of a t interval. That of a share is made on log odds, as by the statistics, so that it
// stays within 0 to 1. least: below which there are no values, but for estimates.
function ends(mean, half, isShare, least) {
  const spread = mean * (1 - mean);
  if (!isShare || !(spread > 0) || !Number.isFinite(half))
    return [Math.max(mean - half, Math.min(least, mean)), mean + half];
  const odds = Math.log(mean / (1 - mean)), share = value => 1 / (1 + Math.exp(-value));
  return [share(odds - half / spread), share(odds + half / spread)];
}

// The mean over seeds with its interval. Along a measured axis, such as KL, points are of equal
// version: both numbers of a point are means over seeds.
function meanOf(curves, isMeasured, quantiles, isShare = false, least = -Infinity) {
  const found = { x: [], y: [], low: [], high: [] };
  const isWithin = isShare && curves.every(curve => curve.y.every(y => y >= 0 && y <= 1));
  const add = (x, values) => {
    const [mean, half] = centre(values, quantiles), [low, high] = ends(mean, half, isWithin, least);
    found.x.push(x); found.y.push(mean); found.low.push(low); found.high.push(high);
  };
  if (isMeasured) {
    for (const place of curves[0].places) {
      const spots = curves.map(curve => curve.places.indexOf(place));
      if (spots.some(spot => spot < 0)) continue;
      const xs = curves.map((curve, n) => curve.x[spots[n]]);
      add(centre(xs, quantiles)[0], curves.map((curve, n) => curve.y[spots[n]]));
    }
    return found;
  }
  for (const x of gridOf(curves)) add(x, curves.map(curve => at(curve, x)));
  return found;
}
