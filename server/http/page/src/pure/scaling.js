// Compares runs on different numbers of devices: their speed, and what of it each device has kept.

// The middle of the values.
export function median(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  if (sorted.length === 0) return undefined;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// The first fifth of a run is warm-up.
const settled = (series) => series?.values.slice(Math.floor(series.values.length / 5)) ?? [];

// The speed of a run; short ones report none, but their points have times.
function speedOf(series, run) {
  const reported = median(settled(series?.get("samples_per_s")));
  if (reported !== undefined) return reported;
  const { steps = [], times = [] } = series?.get("train.loss") ?? {};
  const first = Math.floor(steps.length / 5);
  const last = steps.length - 1;
  const seconds = (times[last] - times[first]) / 1000;
  return seconds > 0
    ? ((steps[last] - steps[first]) * Number(run.spec.train?.global_batch ?? 0)) / seconds
    : undefined;
}

// The runs with a known speed, by ascending devices: [{run, devices, speed, speedUp, efficiency, hidden}], against the
// mean of those on the fewest devices. It is empty unless there are different numbers of devices.
export function scalingOf(runs, seriesOf) {
  const points = runs
    .map((run) => {
      const series = seriesOf(run);
      return {
        run,
        devices: run.placement.length || run.devices,
        speed: speedOf(series, run),
        hidden: median(settled(series?.get("comm.hidden_fraction"))),
      };
    })
    .filter(({ devices, speed }) => devices > 0 && speed > 0)
    .sort((a, b) => a.devices - b.devices || a.run.id - b.run.id);
  if (points.length === 0 || points[0].devices === points.at(-1).devices) return [];
  const fewest = points.filter(({ devices }) => devices === points[0].devices);
  const base = fewest.reduce((sum, { speed }) => sum + speed, 0) / fewest.length / points[0].devices;
  return points.map((point) => ({
    ...point,
    ideal: base * point.devices,
    speedUp: point.speed / (base * points[0].devices),
    efficiency: point.speed / (base * point.devices),
  }));
}
