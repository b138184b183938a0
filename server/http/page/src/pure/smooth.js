// Smooths a series by an exponential moving average without the bias of its first values, as
// section 3 of Kingma and Ba 2014 corrects it. Values that are no finite numbers leave a gap and do not count.
export function smooth(values, weight) {
  if (!(weight > 0)) return values.slice();
  let mean = 0;
  let share = 1;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    mean = mean * weight + value * (1 - weight);
    share *= weight;
    return mean / (1 - share);
  });
}
