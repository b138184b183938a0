// The schedule: which job held which device when, when those that wait are expected to start, and what is reserved.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { sayError } from "../api.js";
import { runColour } from "../charts/colours.js";
import { SaveMenu } from "../charts/save_menu.js";
import { now, returns } from "../connection.js";
import { html, classes } from "../html.js";
import { row } from "../job_row.js";
import { JobList } from "../jobs.js";
import { useKeys } from "../keys.js";
import { useCall } from "../load.js";
import { clock, counted, duration, lastPart } from "../pure/format.js";
import { barsOf, expectedLanes, lanesOf, needsAttempts, reservedOf, timeTicks } from "../pure/schedule.js";
import { go, jobPath, Link, param, setParams } from "../router.js";
import { Empty } from "../widgets.js";
import { useAttemptsOf } from "./attempts_of.js";
import { useExplanations } from "./explanations.js";

const kEveryMs = 5000;
const kQueueShown = 100;
// More bars than this are no picture any more, and slow.
const kBarsMax = 3000;

const kWidth = 1200;
const kLeft = 170;
const kRow = 20;
const kBar = 15;
const kLetter = 6.4;
// A bar of which the end is not known fades out over so much.
const kUnknown = 90;

const kSpans = [
  ["15m", "15 m", 900e3],
  ["1h", "1 h", 3600e3],
  ["", "6 h", 6 * 3600e3],
  ["1d", "1 d", 86400e3],
  ["7d", "7 d", 7 * 86400e3],
];
// The share of the picture that the future gets.
const kFuture = 0.4;

// Jobs that wait may be thousands, and few of them have run before: the queue names those.
const kStates = ["STARTING", "RUNNING", "STOPPING", "SUSPENDED", "SUCCEEDED", "FAILED", "CANCELLED"].map(
  (state) => `JOB_STATE_${state}`,
);

const list = new JobList();

// The part of the time in sight, as the address says. It moves on in steps that one could hardly see.
function windowOf(time) {
  const span = (kSpans.find(([key]) => key === param("span")) ?? kSpans[2])[2];
  const until = Number(param("until")) * 1000;
  const step = span / 400;
  const to = until > 0 ? until : Math.ceil((time + span * kFuture) / step) * step;
  return { from: to - span, to, span, now: time };
}

export function Schedule() {
  useEffect(() => {
    list.open({ where: "", states: kStates, user: "", orderBy: "" });
    return () => list.close();
  }, []);
  useEffect(() => {
    if (returns.value > 0) list.reload();
  }, [returns.value]);
  const workers = useCall("FleetService/ListWorkers", {}, { everyMs: kEveryMs });
  const reservations = useCall("SharingService/ListReservations", {}, { everyMs: kEveryMs });
  const queue = useCall("JobService/ListQueue", { page_size: kQueueShown }, { everyMs: kEveryMs });
  const waiting = queue.data?.jobs ?? [];
  const explained = useExplanations(waiting);
  // A second is seen where an hour is in sight, and not where a week is.
  const time = Math.floor(now.value / 5000) * 5000;
  const view = windowOf(time);
  const waits = waiting.map(row);
  const listed = new Set(list.rows.value.map(({ name }) => name));
  const rows = [...list.rows.value, ...waits.filter(({ name }) => !listed.has(name))];
  const near = rows.filter((one) => one.attempt > 0 && one.created < view.to && (one.ended ?? time) > view.from);
  const attemptsOf = useAttemptsOf(near.filter(needsAttempts));
  const bars = barsOf(near, attemptsOf, view).slice(-kBarsMax);
  const lanes = lanesOf(workers.data?.workers ?? [], bars);
  const expected = expectedLanes(waits, explained, view);
  const reserved = reservedOf(reservations.data?.reservations ?? [], view);
  const by = param("by") === "job" ? "job" : "user";
  const pan = (share) => {
    const to = view.to + view.span * share;
    setParams({ until: to < time + view.span * kFuture ? Math.round(to / 1000) : "" });
  };
  useKeys([
    { key: "[", does: "go back in time", action: () => pan(-0.5) },
    { key: "]", does: "go on in time", action: () => pan(0.5) },
    { key: "0", does: "come back to now", action: () => setParams({ until: "" }) },
  ]);
  const error = list.error.value ?? workers.error;
  return html`<main class="view" id="main">
    <div class="view-head">
      <h1>Schedule</h1>
      <span class="dim num">${counted(bars.length, "attempt")}${bars.length === kBarsMax ? ", the newest" : ""} from
        ${` ${clock(view.from).slice(0, 16)} to ${clock(view.to).slice(0, 16)}`}</span>
      <span class="spacer"></span>
      <div class="chips" role="group" aria-label="Colours">
        ${["user", "job"].map(
          (key) =>
            html`<${Chip} key=${key} isOn=${by === key} text=${`By ${key}`}
            onClick=${() => setParams({ by: key === "user" ? "" : key })} />`,
        )}
      </div>
      <div class="chips" role="group" aria-label="Time in sight">
        ${kSpans.map(
          ([key, text]) =>
            html`<${Chip} key=${key} text=${text} isOn=${param("span") === key}
            onClick=${() => setParams({ span: key })} />`,
        )}
      </div>
      <button type="button" class="button" onClick=${() => pan(-0.5)}>Earlier</button>
      <button type="button" class="button" disabled=${param("until") === ""} onClick=${() => pan(0.5)}>Later</button>
      ${
        param("until") !== "" &&
        html`<button type="button" class="button" onClick=${() => setParams({ until: "" })}>Now</button>`
      }
    </div>
    ${
      lanes.length + expected.length > 0
        ? html`<${Gantt} view=${view} lanes=${lanes} bars=${bars} expected=${expected} reserved=${reserved}
            by=${by} />`
        : error
          ? html`<${Empty} title="The schedule cannot be shown">${sayError(error)}</${Empty}>`
          : workers.data
            ? html`<${Empty} title="No devices">Start a worker with <code>trainyard up</code>.</${Empty}>`
            : html`<div class="loading">Loading</div>`
    }
    ${
      waiting.length > expected.length &&
      html`<p class="dim schedule-note">${counted(waiting.length - expected.length, "job waits", "jobs wait")} without
        an
        expected start in sight; <${Link} href="/queue">the queue</${Link}> says why.</p>`
    }
  </main>`;
}

const Chip = ({ text, isOn, onClick }) =>
  html`<button type="button" class=${classes("chip", isOn && "chip-on")} aria-pressed=${isOn} onClick=${onClick}>
    ${text}</button>`;

const jobText = ({ id, title }) => `${id} ${title}`;

function Gantt({ view, lanes, bars, expected, reserved, by }) {
  const svg = useRef(null);
  const scroller = useRef(null);
  const [marked, setMarked] = useState(null);
  const { from, to } = view;
  const x = (ms) => kLeft + ((Math.min(to, Math.max(from, ms)) - from) / (to - from)) * (kWidth - kLeft);
  // A phone shows a part of the picture, and the part around now says most.
  useLayoutEffect(() => {
    const { scrollWidth, clientWidth } = scroller.current;
    scroller.current.scrollLeft = (x(view.now) / kWidth) * scrollWidth - clientWidth / 2;
  }, []);
  const colourOf = useColours(bars, expected, by);
  const ticks = timeTicks(from, to, 10);
  const mark = (text) => ({
    onMouseEnter: () => setMarked(text),
    onMouseLeave: () => setMarked(null),
    onFocus: () => setMarked(text),
    onBlur: () => setMarked(null),
  });

  // The places of rows: a title for each worker, then its devices.
  let y = 24;
  const rows = [];
  let last;
  for (const lane of lanes) {
    if (lane.worker !== last) {
      rows.push({ title: lastPart(lane.worker), y });
      y += kRow;
      last = lane.worker;
    }
    rows.push({ lane, y });
    y += kRow;
  }
  if (expected.length > 0) {
    rows.push({ title: "Expected", y });
    y += kRow;
    for (const wait of expected) {
      rows.push({ wait, y });
      y += kRow;
    }
  }
  const height = y + 6;
  const owners = [...new Map(bars.map(({ row }) => [by === "job" ? jobText(row) : row.user, colourOf(row)]))];
  return html`<figure class="panel" aria-label="Schedule">
    <figcaption class="panel-head"><h2>Devices over time</h2>
      <span class="dim gantt-marked">${
        marked ??
        `what is paler is expected${reserved.size > 0 ? ", what is striped is reserved" : ""}; arrow keys move, ` +
          "Enter opens a job"
      }</span>
      <span class="spacer"></span>
      <${SaveMenu} title="Save the schedule" what="Attempts" file="schedule" svg=${svg}
        table=${() => tableOf(bars, expected)} /></figcaption>
    <div class="parallel-scroll" tabindex="0" role="group" aria-label="Picture of the schedule" ref=${scroller}
      onKeyDown=${move}>
      <svg ref=${svg} class="parallel gantt" viewBox=${`0 0 ${kWidth} ${height}`} role="group"
        aria-label=${`${bars.length} attempts on ${lanes.length} devices, ${expected.length} expected starts`}>
        <defs><pattern id="gantt-stripes" width="6" height="6" patternUnits="userSpaceOnUse"
          patternTransform="rotate(45)"><rect class="gantt-stripe" width="2" height="6" /></pattern></defs>
        ${ticks.map(
          ({ at, text }) =>
            html`<g key=${at}><line class="gantt-grid" x1=${x(at)} x2=${x(at)} y1="20" y2=${height} />
            <text class="axis-tick" x=${x(at)} y="13" text-anchor="middle">${text}</text></g>`,
        )}
        ${rows.map(({ title, lane, wait, y: top }) =>
          title !== undefined
            ? html`<text key=${`title ${title}`} class="axis-title" x="4" y=${top + 14}>${cut(title, kLeft)}</text>`
            : html`<g key=${lane ? lane.key : wait.row.name}>
                <text class="axis-tick" x="14" y=${top + 13}>${cut(
                  lane ? `${shortDevice(lane.device)} ${lane.type}` : `${wait.row.devices} × ${wait.row.title}`,
                  kLeft,
                )}</text>
                <line class="gantt-line" x1=${kLeft} x2=${kWidth} y1=${top + kRow - 1} y2=${top + kRow - 1} />
                ${(reserved.get(lane?.key) ?? []).map(
                  (one) =>
                    html`<${Reserved} key=${one.name} reservation=${one} x=${x} top=${top} mark=${mark} />`,
                )}
                ${lane?.bars.map(
                  (bar, index) =>
                    html`<${Bar} key=${`${bar.row.name} ${bar.number} ${index}`} bar=${bar} x=${x} top=${top}
                      now=${view.now}
                    colour=${colourOf(bar.row)} mark=${mark} />`,
                )}
                ${
                  wait &&
                  html`<${Wait} wait=${wait} x=${x} top=${top} colour=${colourOf(wait.row)} mark=${mark}
                  now=${view.now} />`
                }
              </g>`,
        )}
        ${
          view.now >= from &&
          view.now <= to &&
          html`<line class="gantt-now" x1=${x(view.now)} x2=${x(view.now)} y1="20" y2=${height} />`
        }
      </svg></div>
    ${
      owners.length > 0 &&
      html`<ul class="owners gantt-owners" aria-label="Colours of the picture">${owners.slice(0, 20).map(
        ([name, colour]) =>
          html`<li key=${name}><span class="owner-dot"
            style=${{ background: `var(${colour})` }} aria-hidden="true"></span>
          ${name}</li>`,
      )}</ul>`
    }
  </figure>`;
}

// Users, or jobs, in the order in which they came.
function useColours(bars, expected, by) {
  const keyOf = (row) => (by === "job" ? row.id : row.user);
  const keys = [...bars, ...expected].map(({ row }) => keyOf(row));
  const colours = useMemo(
    () => new Map([...new Set(keys)].sort().map((key, index) => [key, runColour(index)])),
    [keys.join()],
  );
  return (row) => colours.get(keyOf(row));
}

// A place of the picture that leads to a job. One is reached by the tabulator, the others by arrows.
function Place({ row, text, mark, children }) {
  const open = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button > 0) return;
    event.preventDefault();
    go(jobPath(row.name));
  };
  return html`<a href=${jobPath(row.name)} class="gantt-bar" aria-label=${text} tabindex="-1" onClick=${open}
    ...${mark(text)}>${children}</a>`;
}

function Bar({ bar, x, top, now, colour, mark }) {
  const { row, begin, end, isOver, expected, number, state } = bar;
  const left = x(begin);
  const width = Math.max(1.5, x(end) - left);
  const more = isOver ? 0 : expected === undefined ? kUnknown : x(expected) - x(now);
  const text =
    `${jobText(row)}, attempt ${number} of ${row.user}, ${state}, from ${clock(begin).slice(5)}, ` +
    (isOver ? duration((end - begin) / 1000) : `for ${duration((now - begin) / 1000)}`) +
    (expected === undefined ? "" : `, expected to end ${clock(expected).slice(5)}`);
  const fill = `var(${colour})`;
  return html`<${Place} row=${row} text=${text} mark=${mark}>
    ${
      more > 0 &&
      html`<rect class="gantt-expected" x=${x(now)} y=${top + 2} height=${kBar}
      width=${Math.min(more, kWidth - x(now))} style=${{ fill }} />`
    }
    <rect x=${left} y=${top + 2} width=${width} height=${kBar} style=${{ fill }} />
    ${
      /failed|lost/.test(state) &&
      html`<rect class="gantt-failed" x=${left + width - 3} y=${top + 2} width="3"
      height=${kBar} />`
    }
    ${width > 30 && html`<text class="gantt-text" x=${left + 4} y=${top + 13}>${cut(jobText(row), width)}</text>`}
  </${Place}>`;
}

function Wait({ wait, x, top, colour, mark, now }) {
  const { row, begin, end, basis } = wait;
  const left = x(begin);
  const width = Math.min(kWidth - left, end === undefined ? kUnknown : Math.max(3, x(end) - left));
  const text = `${jobText(row)} of ${row.user}, expected to start in ${duration((begin - now) / 1000)}, ${basis}`;
  return html`<${Place} row=${row} text=${text} mark=${mark}>
    <rect class="gantt-expected" x=${left} y=${top + 2} width=${width} height=${kBar}
      style=${{ fill: `var(${colour})`, stroke: `var(${colour})` }} />
    ${width > 30 &&
      html`<text class="gantt-text-expected" x=${left + 4} y=${top + 13}>${cut(jobText(row), width)}</text>`}
  </${Place}>`;
}

function Reserved({ reservation, x, top, mark }) {
  const { name, subjects, begin, end } = reservation;
  const text =
    `reservation ${name} for ${subjects.join(", ")}, from ${clock(begin).slice(5, 16)} ` +
    `to ${clock(end).slice(5, 16)}`;
  const left = x(begin);
  const width = Math.max(1.5, x(end) - left);
  return html`<g role="img" aria-label=${text} ...${mark(text)}>
    <rect x=${left} y=${top} width=${width} height=${kRow - 1} style=${{ fill: "url(#gantt-stripes)" }} />
    ${
      width > 40 &&
      html`<text class="gantt-text-reserved" x=${left + width - 6} y=${top + 13} text-anchor="end">${cut(name, width)}</text>`
    }
  </g>`;
}

const cut = (text, width) => {
  const letters = Math.floor((width - 8) / kLetter);
  return text.length <= letters ? text : `${text.slice(0, Math.max(0, letters - 1))}…`;
};

const shortDevice = (name) => (name.length > 14 ? `${name.slice(0, 4)}…${name.slice(-6)}` : name);

// Arrows go to the bar before or after in a lane, and to the nearest one above or below.
function move(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step) return;
  event.preventDefault();
  const lanes = [...event.currentTarget.querySelectorAll("g")]
    .map((lane) => [...lane.querySelectorAll(".gantt-bar")])
    .filter((bars) => bars.length > 0);
  const here = document.activeElement;
  const lane = lanes.findIndex((bars) => bars.includes(here));
  const middle = (bar) => bar.getBoundingClientRect().x;
  const beside = step[1] === 0 ? undefined : lanes[lane]?.[lanes[lane].indexOf(here) + step[1]];
  const nearest = (bars) =>
    bars?.reduce((a, b) => (Math.abs(middle(b) - middle(here)) < Math.abs(middle(a) - middle(here)) ? b : a));
  const next = lane < 0 ? lanes[0]?.[0] : step[1] === 0 ? nearest(lanes[lane + step[0]]) : beside;
  next?.focus();
}

function tableOf(bars, expected) {
  const time = (ms) => (ms === undefined ? "" : new Date(ms).toISOString());
  return [
    ["job", "name", "user", "attempt", "state", "rank", "worker", "device", "begin", "end", "is_expected"],
    [
      ...bars.flatMap(({ row, number, state, places, begin, end, isOver, expected: later }) =>
        places.map(({ rank = 0, worker, device = "" }) => [
          row.id,
          row.title,
          row.user,
          number,
          state,
          rank,
          lastPart(worker),
          device,
          time(begin),
          time(isOver ? end : later),
          !isOver,
        ]),
      ),
      ...expected.map(({ row, begin, end }) => [
        row.id,
        row.title,
        row.user,
        row.attempt + 1,
        "queued",
        "",
        "",
        "",
        time(begin),
        time(end),
        true,
      ]),
    ],
  ];
}
