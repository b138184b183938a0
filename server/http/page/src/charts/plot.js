// Draws curves with uPlot: for each series the band between the extremes of its raw values, and its smoothed line.
import uPlot from "uplot";
import { colour, withAlpha } from "./colours.js";
import { envelope, joinSeries } from "../pure/downsample.js";
import { duration, isShare, number } from "../pure/format.js";

const kAxisFont = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

// A series with fewer points has nothing to smooth: its line would only come late.
const kSmoothedFrom = 60;

// The data of uPlot for series of {xs, values}, as wide as the plot.
export function plotData(series, { width, weight, zoom, isLog }) {
  const parts = [];
  for (const { xs, values } of series) {
    const shown = isLog ? values.map((value) => (value > 0 ? value : null)) : values;
    const { x, low, high, line } = envelope(xs, shown, {
      buckets: Math.max(50, Math.floor(width)),
      weight: shown.length < kSmoothedFrom ? 0 : weight,
      from: zoom?.[0],
      to: zoom?.[1],
    });
    parts.push({ x, y: low }, { x, y: high }, { x, y: line });
  }
  return joinSeries(parts);
}

const shortStep = (value) => {
  if (Math.abs(value) >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return number(value);
};

// Makes a plot in `element`. `marks` are drawn at their places of the x axis: {x, kind}.
export function makePlot(element, { title, series, axis, isLog, width, height, data, zoom, marks, onZoom }) {
  const dim = colour("--dim");
  const grid = { stroke: colour("--grid"), width: 1 };
  const isPercent = isShare(title) || isShare(`test.${title}`);
  const ticks = { stroke: colour("--grid"), width: 1, size: 4 };
  const plot = new uPlot(
    {
      width,
      height,
      legend: { show: false },
      cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      select: { show: true },
      padding: [8, 10, 0, 0],
      scales: {
        x: {
          time: false,
          range: (self, low, high) => zoom() ?? (low === high ? [low - 1, high + 1] : [low, high]),
        },
        y: isLog ? { distr: 3 } : { range: rangeOf },
      },
      axes: [
        {
          stroke: dim,
          grid,
          ticks,
          font: kAxisFont,
          size: 26,
          gap: 4,
          values: (self, values) => values.map(axis === "time" ? (value) => duration(value) : shortStep),
          space: axis === "time" ? 78 : 58,
        },
        {
          stroke: dim,
          grid,
          ticks,
          font: kAxisFont,
          size: 52,
          gap: 4,
          values: (self, values) =>
            values.map((value) => (value === null ? "" : isPercent ? `${number(value * 100)}%` : number(value))),
        },
      ],
      series: [
        {},
        ...series.flatMap(({ colour: name, dash }) => {
          const stroke = colour(name);
          const faint = { stroke: withAlpha(stroke, 0.28), width: 1, points: { show: false }, spanGaps: false };
          return [
            faint,
            faint,
            { stroke, width: 1.7, dash, spanGaps: false, points: { show: showsPoints, size: 5, fill: stroke } },
          ];
        }),
      ],
      bands: series.map(({ colour: name }, index) => ({
        series: [index * 3 + 2, index * 3 + 1],
        fill: withAlpha(colour(name), 0.14),
      })),
      hooks: {
        draw: [(self) => drawMarks(self, marks())],
        setSelect: [
          (self) => {
            if (self.select.width < 6) return;
            const from = self.posToVal(self.select.left, "x");
            const to = self.posToVal(self.select.left + self.select.width, "x");
            self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            onZoom([from, to]);
          },
        ],
      },
    },
    data,
    element,
  );
  return plot;
}

// A flat line gets room around it, in place of a range that has nothing to do with its value.
function rangeOf(self, low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(low) * 0.1];
  return uPlot.rangeNum(low, high, 0.1, true);
}

// Points stand alone where a line would not show them.
function showsPoints(self, seriesIndex) {
  let count = 0;
  for (const value of self.data[seriesIndex]) {
    if (value !== null && value !== undefined && ++count > 24) return false;
  }
  return true;
}

const kMarkColours = {
  checkpoint: "--succeeded",
  preemption: "--queued",
  restart: "--accent",
  failure: "--failed",
  suspension: "--suspended",
};

// Checkpoints are many, so they are ticks at the foot; what interrupted the training is a line.
function drawMarks(self, marks) {
  const { ctx, bbox } = self;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  for (const { x, kind } of marks) {
    const at = Math.round(self.valToPos(x, "x", true)) + 0.5;
    if (at < bbox.left || at > bbox.left + bbox.width + 1) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(kMarkColours[kind] ?? "--dim");
    ctx.lineWidth = ratio;
    ctx.beginPath();
    if (kind === "checkpoint") {
      const foot = bbox.top + bbox.height;
      ctx.moveTo(at, foot);
      ctx.lineTo(at - 3.5 * ratio, foot - 6 * ratio);
      ctx.lineTo(at + 3.5 * ratio, foot - 6 * ratio);
      ctx.closePath();
      ctx.fill();
    } else {
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillRect(at - 3 * ratio, bbox.top, 6 * ratio, 6 * ratio);
    }
  }
  ctx.restore();
}
