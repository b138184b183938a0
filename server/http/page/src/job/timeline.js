// The timeline of single steps: what each rank computed, sent and waited for.
import { useEffect, useRef, useState } from "preact/hooks";
import { sayError } from "../api.js";
import { SaveMenu } from "../charts/save_menu.js";
import { html } from "../html.js";
import { useKeys } from "../keys.js";
import { duration, isActive, lastPart, number } from "../pure/format.js";
import { bytesOf, LineCutter } from "../pure/lines.js";
import { addLines, stepOf } from "../pure/timeline.js";
import { param, setParams } from "../router.js";
import { openStream } from "../stream.js";
import { Empty } from "../widgets.js";

// A rank writes at most 4 MiB; of many ranks, so much is read.
const kBytesMax = 24 << 20;
// More spans than this are no picture any more, and slow.
const kSpansMax = 4000;
const kRanksMax = 64;

const kWidth = 1200;
const kLeft = 110;
const kRow = 18;
const kLetter = 6.4;

const kLaneNames = { compute: "compute", comm: "communication", data: "data" };

export function Timeline({ job, attempts }) {
  const attempt = Number(param("attempt")) || job.attempt || 0;
  const { steps, isLoading, isCut, error } = useSpans(job.name, attempt, isActive(job.state));
  const numbers = [...steps.keys()].sort((a, b) => a - b);
  const chosen = Number(param("step"));
  const index = Math.max(0, numbers.includes(chosen) ? numbers.indexOf(chosen) : Math.min(1, numbers.length - 1));
  const go = (by) => numbers[index + by] !== undefined && setParams({ step: numbers[index + by], part: "" });
  useKeys([
    { key: "[", does: "the recorded step before", action: () => go(-1) },
    { key: "]", does: "the next recorded step", action: () => go(1) },
    { key: "0", does: "the whole step", action: () => setParams({ part: "" }) },
  ]);
  if (attempt === 0) return html`<${Empty} title="No timeline yet">The job has not run yet.</${Empty}>`;
  const select = (label, value, options, change) =>
    html`<label class="control">${label} <select class="select" value=${value} onChange=${change}>
      ${options.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>`;
  return html`<div class="stack">
    <div class="toolbar" role="group" aria-label="Timeline">
      ${
        attempts.length > 1 &&
        select(
          "Attempt",
          attempt,
          attempts.map(({ name }) => lastPart(name)),
          (event) => setParams({ attempt: event.target.value, step: "", part: "" }),
        )
      }
      ${
        numbers.length > 0 &&
        select("Step", numbers[index], numbers, (event) => setParams({ step: event.target.value, part: "" }))
      }
      ${numbers.length > 0 &&
        html`<span class="dim">recorded are a few steps after each start, and some later ones</span>`}
      ${isCut && html`<span class="dim">the first ${kBytesMax >> 20} MiB of the timelines</span>`}
    </div>
    ${
      numbers.length > 0
        ? html`<${Step} step=${stepOf(steps.get(numbers[index]))} number=${numbers[index]} job=${job} />`
        : isLoading
          ? html`<div class="loading">Loading</div>`
          : html`<${Empty} title="No timeline">${
              error
                ? sayError(error)
                : "Ranks write it in the first steps of an attempt; programs of users write none."
            }</${Empty}>`
    }
  </div>`;
}

function useSpans(name, attempt, isRunning) {
  const [state, setState] = useState({ steps: new Map(), isLoading: true });
  useEffect(() => {
    if (attempt === 0) return undefined;
    setState({ steps: new Map(), isLoading: true });
    const steps = new Map();
    const cutters = new Map();
    let bytes = 0;
    const show = (more) => setState({ steps, isLoading: false, ...more });
    const request = { name: `${name}/attempts/${attempt}`, stream: "RANK_STREAM_TRACE" };
    const close = openStream("JobService/TailLogs", request, {
      onMessage: ({ rank = 0, offset = "0", data = "" }) => {
        if (!cutters.has(rank)) cutters.set(rank, new LineCutter());
        addLines(
          steps,
          rank,
          cutters
            .get(rank)
            .add(Number(offset), bytesOf(data))
            .map(({ text }) => text),
        );
        bytes += data.length;
        if (bytes > kBytesMax) {
          close();
          show({ isCut: true });
        }
      },
      onEnd: () => show({}),
      onError: (error) => show({ error }),
    });
    return close;
  }, [name, attempt, isRunning]);
  return state;
}

const micros = (value) => duration(value / 1e6);
const exact = (value) =>
  value < 1000
    ? `${Math.round(value)} µs`
    : value < 1e6
      ? `${number(Number((value / 1e3).toPrecision(3)))} ms`
      : micros(value);

function Step({ step, number: of, job }) {
  const svg = useRef(null);
  const [marked, setMarked] = useState(null);
  const shownRanks = step.ranks.slice(0, kRanksMax);
  const zoom = /^(\d+)_(\d+)$/.exec(param("part"));
  const length = Math.max(1, step.end - step.begin);
  const from = zoom ? Number(zoom[1]) : 0;
  const to = zoom ? Math.max(from + 1, Number(zoom[2])) : length;
  const part = (low, high) =>
    setParams({ part: `${Math.max(0, Math.round(low))}_${Math.round(Math.min(length, high))}` });
  const width = to - from;
  useKeys([
    { key: "+", does: "show the middle larger", action: () => part(from + width / 4, to - width / 4) },
    { key: "<", does: "show what was before", action: () => part(from - width / 2, to - width / 2) },
    { key: ">", does: "show what came after", action: () => part(from + width / 2, to + width / 2) },
  ]);
  const x = (at) => kLeft + ((Math.min(to, Math.max(from, at)) - from) / (to - from)) * (kWidth - kLeft - 10);
  let y = 24;
  let left = kSpansMax;
  const lanes = shownRanks.flatMap(({ rank, lanes }) => {
    const first = y;
    return lanes.map(([kind, spans], index) => {
      const seen = spans
        .filter(({ begin, end }) => end - step.begin >= from && begin - step.begin <= to)
        .slice(0, Math.max(0, left));
      left -= seen.length;
      const lane = { rank, kind, seen, y, isFirst: index === 0, first };
      y += kRow + (index === lanes.length - 1 ? 8 : 0);
      return lane;
    });
  });
  const text = ({ name, begin, end }, rank) =>
    `rank ${rank}: ${name}, ${exact(end - begin)}, ${exact(begin - step.begin)} after the beginning`;
  const zoomTo = ({ begin, end }) => {
    const room = Math.max(20, end - begin);
    part(begin - step.begin - room, end - step.begin + room);
  };
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => from + (to - from) * share);
  const table = () => [
    ["step", "rank", "kind", "name", "begin_us", "end_us"],
    step.ranks.flatMap(({ rank, lanes }) =>
      lanes.flatMap(([, spans]) => spans.map(({ kind, name, begin, end }) => [of, rank, kind, name, begin, end])),
    ),
  ];
  return html`<figure class="panel" aria-label="Timeline of the step">
    <figcaption class="panel-head"><h2>Step ${of}</h2>
      <span class="dim gantt-marked">${marked ?? `${exact(length)}; click a span to see it larger`}</span>
      <span class="spacer"></span>
      ${
        zoom &&
        html`<button type="button" class="button button-small" onClick=${() => setParams({ part: "" })}>
        Whole step</button>`
      }
      <${SaveMenu} title="Save the timeline" what="Spans" file=${`${job.name.replace("/", "-")}-step-${of}`} svg=${svg}
        table=${table} /></figcaption>
    <div class="parallel-scroll" tabindex="0" role="group" aria-label="Picture of the step"><svg ref=${svg}
      class="parallel gantt" viewBox=${`0 0 ${kWidth} ${y}`} role="img"
      aria-label=${`What ${step.ranks.length} ranks did in step ${of}; the table below has the sums`}>
      ${ticks.map(
        (at) =>
          html`<g key=${at}><line class="gantt-grid" x1=${x(at)} x2=${x(at)} y1="18" y2=${y} />
          <text class="axis-tick" x=${x(at)} y="12" text-anchor=${at === to ? "end" : "middle"}>${
            exact(at)}</text></g>`,
      )}
      ${lanes.map(
        ({ rank, kind, seen, y: top, isFirst }) =>
          html`<g key=${`${rank} ${kind}`}>
          <text class="axis-tick" x=${kLeft - 8} y=${top + 12} text-anchor="end">${
            `${isFirst ? `rank ${rank}  ` : ""}${kLaneNames[kind]}`}</text>
          ${seen.map((span, index) => {
            const width = Math.max(0.75, x(span.end - step.begin) - x(span.begin - step.begin));
            return html`<g key=${index} class="span-place" onMouseEnter=${() => setMarked(text(span, rank))}
              onMouseLeave=${() => setMarked(null)} onClick=${() => zoomTo(span)}>
              <rect class=${`span-${span.kind}`} x=${x(span.begin - step.begin)} y=${top} width=${width}
                height=${kRow - 3} />
              ${
                width > 34 &&
                html`<text class="gantt-text" x=${x(span.begin - step.begin) + 3} y=${top + 11}>${span.name.slice(
                  0,
                  Math.floor((width - 6) / kLetter),
                )}</text>`
              }</g>`;
          })}</g>`,
      )}
    </svg></div>
    <div class="panel-body mark-key">${["compute", "comm", "wait", "data"].map(
      (kind) =>
        html`<span key=${kind} class=${`mark key-${kind}`}>${kLaneNames[kind] ?? "waits for others"}</span>`,
    )}
      ${left <= 0 && html`<span>only ${number(kSpansMax)} spans are drawn</span>`}</div>
    <div class="scroll-x" tabindex="0" role="group" aria-label="Sums of the step"><table
      class="table timeline-sums"><thead><tr>
      ${["Rank", "Step", "Computes", "Communicates", "Waits for others", "Hidden", "Waits for data"].map(
        (title) => html`<th scope="col" class="right" key=${title}>${title}</th>`,
      )}</tr></thead>
      <tbody>${step.ranks.map(
        (one) =>
          html`<tr key=${one.rank}><td class="right">${one.rank}</td>
          ${[one.length, one.compute, one.comm, one.wait].map(
            (value, index) => html`<td class="right" key=${index}>${exact(value)}</td>`,
          )}
          <td class="right">${one.hidden === undefined ? "–" : `${Math.round(one.hidden * 100)}%`}</td>
          <td class="right">${exact(one.data)}</td></tr>`,
      )}</tbody></table></div>
  </figure>`;
}
