// One chart: its plot while it is in sight, the values under the shared cursor, and its files.
import { useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html, classes } from "../html.js";
import { nearest } from "../pure/downsample.js";
import { direction, number } from "../pure/format.js";
import { Menu } from "../widgets.js";
import { isDark } from "./colours.js";
import { saveCsv, saveJson, savePng } from "./files.js";
import { Legend } from "./legend.js";
import { makePlot, plotData } from "./plot.js";

const kHeight = 208;

// `series` are {key, label, colour, xs, values, dash, href, isBase}; `settings` are {weight, isLog, axis, zoom}.
export function Chart({ title, metric, series, settings, marks = [], group, onZoom, file }) {
  const frame = useRef(null);
  const holder = useRef(null);
  const line = useRef(null);
  const plot = useRef(null);
  const latest = useRef({});
  latest.current = { series, settings, marks, onZoom };
  const [isInSight, setInSight] = useState(false);
  const [width, setWidth] = useState(0);
  const dark = isDark.value;

  useEffect(() => {
    const sight = new IntersectionObserver(([entry]) => setInSight(entry.isIntersecting), { rootMargin: "300px" });
    const size = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    sight.observe(frame.current);
    size.observe(holder.current);
    return () => {
      sight.disconnect();
      size.disconnect();
    };
  }, []);

  const hasPoints = series.some(({ xs }) => xs.length > 0);
  const shape = series.map(({ key, colour, dash }) => `${key}${colour}${dash}`).join("|");
  const dataOf = () =>
    plotData(latest.current.series, {
      width: width - 64,
      weight: settings.weight,
      zoom: settings.zoom,
      isLog: settings.isLog,
    });

  useLayoutEffect(() => {
    if (!isInSight || width < 80 || !hasPoints) return undefined;
    const made = makePlot(holder.current, {
      title: metric,
      series,
      axis: settings.axis,
      isLog: settings.isLog,
      width,
      height: kHeight,
      data: dataOf(),
      zoom: () => latest.current.settings.zoom,
      marks: () => latest.current.marks,
      onZoom: (range) => latest.current.onZoom(range),
    });
    plot.current = made;
    line.current = document.createElement("div");
    line.current.className = "chart-cursor";
    line.current.hidden = true;
    made.over.append(line.current);
    let downAt = null;
    const xOf = (event) => made.posToVal(event.clientX - made.over.getBoundingClientRect().left, "x");
    made.over.addEventListener("pointermove", (event) => group.move(xOf(event)));
    made.over.addEventListener("pointerleave", () => group.move(null));
    made.over.addEventListener("pointerdown", (event) => {
      downAt = event.clientX;
    });
    made.over.addEventListener("click", (event) => {
      if (downAt !== null && Math.abs(event.clientX - downAt) < 4) group.toggleFrozen(xOf(event));
    });
    made.over.addEventListener("dblclick", () => latest.current.onZoom(null));
    placeLine();
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [isInSight, width, hasPoints, shape, settings.isLog, settings.axis, dark, metric]);

  useEffect(() => {
    if (plot.current) {
      plot.current.setData(dataOf());
      placeLine();
    }
  }, [series, settings.weight, settings.zoom?.join(), marks]);

  const placeLine = () => {
    const x = group.x.peek();
    if (!plot.current || !line.current) return;
    const left = x === null ? -1 : plot.current.valToPos(x, "x");
    line.current.hidden = !(left >= 0 && left <= plot.current.over.clientWidth);
    line.current.style.transform = `translateX(${Math.round(left)}px)`;
    line.current.classList.toggle("chart-cursor-frozen", group.isFrozen.peek());
  };
  useSignalEffect(() => {
    group.x.value;
    group.isFrozen.value;
    placeLine();
  });

  const key = (event) => {
    const xs = series[0]?.xs ?? [];
    if (xs.length === 0) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (step !== undefined) {
      const at = group.x.value === null ? xs.length - 1 : nearest(xs, group.x.value) + step;
      const x = xs[Math.min(xs.length - 1, Math.max(0, at))];
      if (group.isFrozen.value) group.x.value = x;
      else group.toggleFrozen(x);
      event.preventDefault();
    } else if (event.key === "Escape") {
      group.isFrozen.value = false;
      group.x.value = null;
    }
  };

  const name = `${file}-${title.replace(/[^A-Za-z0-9]+/g, "-")}`;
  return html`<figure class="chart panel" ref=${frame} aria-label=${title}>
    <figcaption class="chart-head"><h2>${title}</h2>
      ${
        series.some(({ isThinned }) => isThinned) &&
        html`<span
          class="dim chart-note"
          title="The server chose these points evenly; extremes between them are not shown."
          >thinned out</span
        >`
      }
      <span class="spacer"></span>
      <${Menu} label="⋯" title=${`Save ${title}`} kind="button button-quiet button-small" align="right">
        <button type="button" class="menu-item" data-close onClick=${() => saveCsv(name, settings.axis, series)}>
          Points as CSV</button>
        <button type="button" class="menu-item" data-close onClick=${() => saveJson(name, settings.axis, series)}>
          Points as JSON</button>
        <button type="button" class="menu-item" data-close disabled=${!plot.current}
          onClick=${() => plot.current && savePng(name, title, plot.current, series)}>Picture as PNG</button>
      </${Menu}>
    </figcaption>
    <div class=${classes("chart-plot", !hasPoints && "chart-empty")} ref=${holder} tabindex="0" role="img"
      aria-label=${summary(title, series)} onKeyDown=${key} style=${{ height: `${kHeight}px` }}></div>
    <${Legend} metric=${metric} series=${series} group=${group} better=${direction(metric)}
      axis=${settings.axis} />
  </figure>`;
}

function summary(title, series) {
  const parts = series.map(({ label, xs, values }) =>
    xs.length === 0
      ? `${label}: no points yet`
      : `${label}: ${xs.length} points, last ${number(values[values.length - 1])}`,
  );
  return `${title}. ${parts.join("; ")}. Arrow keys move the cursor.`;
}
