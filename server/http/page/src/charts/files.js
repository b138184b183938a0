// Saves what a chart shows: its points as they came, or its picture.
import { toCsv } from "../pure/csv.js";
import { download } from "../widgets.js";
import { colour } from "./colours.js";

export function saveCsv(name, axis, series) {
  const rows = series.flatMap(({ label, xs, values }) => xs.map((x, index) => [label, x, values[index]]));
  download(`${name}.csv`, toCsv(["series", axis === "time" ? "seconds" : "step", "value"], rows), "text/csv");
}

export function saveJson(name, axis, series) {
  const plain = series.map(({ label, xs, values }) => ({
    series: label,
    [axis === "time" ? "seconds" : "steps"]: xs,
    values: values.map((value) => (Number.isFinite(value) ? value : String(value))),
  }));
  download(`${name}.json`, JSON.stringify(plain), "application/json");
}

export function savePng(name, title, plot, series) {
  const source = plot.ctx.canvas;
  const ratio = source.width / plot.width;
  const head = 28 * ratio;
  const foot = (8 + 18 * Math.ceil(series.length / 2)) * ratio;
  const canvas = document.createElement("canvas");
  canvas.width = source.width;
  canvas.height = source.height + head + foot;
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = colour("--surface");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colour("--text");
  ctx.font = `600 ${13 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, 12 * ratio, 19 * ratio);
  ctx.drawImage(source, 0, head);
  ctx.font = `${12 * ratio}px system-ui, sans-serif`;
  series.forEach(({ label, colour: stroke }, index) => {
    const x = (12 + (index % 2) * (plot.width / 2)) * ratio;
    const y = head + source.height + (14 + 18 * Math.floor(index / 2)) * ratio;
    ctx.fillStyle = colour(stroke);
    ctx.fillRect(x, y - 6 * ratio, 12 * ratio, 3 * ratio);
    ctx.fillStyle = colour("--text");
    ctx.fillText(label, x + 18 * ratio, y, (plot.width / 2 - 40) * ratio);
  });
  canvas.toBlob((blob) => blob && download(`${name}.png`, blob), "image/png");
}
