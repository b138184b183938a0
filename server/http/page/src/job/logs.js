// The logs of a job: by attempt and rank, followed to the end, searched, with a link to each line.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { html, classes } from "../html.js";
import { useKeys } from "../keys.js";
import { isActive, lastPart, number } from "../pure/format.js";
import { param, setParams, withParams } from "../router.js";
import { showRow, useVisibleRows } from "../virtual.js";
import { download, ErrorBox } from "../widgets.js";
import { LogStore } from "./log_store.js";
import { LogText } from "./log_text.js";

const kLineHeight = 18;

export function Logs({ job, attempts }) {
  const attempt = Number(param("attempt")) || job.attempt || 0;
  const ranks =
    attempts.find(({ name }) => Number(lastPart(name)) === attempt)?.placement?.length ?? job.placement?.length ?? 1;
  const rank = param("rank");
  const isWhole = param("from") === "start" || param("at") !== "";
  const isLive = isActive(job.state) && attempt === job.attempt;
  const [store, setStore] = useState(null);
  useEffect(() => {
    if (attempt === 0) return undefined;
    const made = new LogStore({
      name: `${job.name}/attempts/${attempt}`,
      rank: rank === "" ? undefined : Number(rank),
      isWhole,
      follow: isLive,
    });
    setStore(made);
    return () => made.close();
  }, [job.name, attempt, rank, isWhole]);

  if (attempt === 0)
    return html`<div class="panel panel-body dim">Its first attempt has not begun, so there is no log.</div>`;
  const choose = (name) => (event) => setParams({ [name]: event.target.value, at: "" });
  return html`<section class="panel log-panel" aria-label="Logs">
    <div class="panel-head">
      ${
        attempts.length > 1 &&
        html`<label class="control"
          >Attempt
          <select class="select" value=${String(attempt)} onChange=${choose("attempt")}>
            ${attempts.map(
              ({ name }) => html`<option key=${name} value=${lastPart(name)}>${lastPart(name)}</option>`,
            )}
          </select></label
        >`
      }
      ${
        ranks > 1 &&
        html`<label class="control"
          >Rank
          <select class="select" value=${rank} onChange=${choose("rank")}>
            <option value="">all ${ranks}</option>
            ${Array.from({ length: ranks }, (_, index) =>
              html`<option key=${index} value=${String(index)}>${index}</option>`)}
          </select></label
        >`
      }
      ${
        store &&
        html`<${LogView}
          key=${`${attempt}/${rank}/${isWhole}`}
          store=${store}
          isLive=${isLive}
          hasRanks=${ranks > 1 && rank === ""}
          file=${`job-${lastPart(job.name)}-attempt-${attempt}${rank && `-rank-${rank}`}`}
        />`
      }
    </div>
  </section>`;
}

function LogView({ store, isLive, hasRanks, file }) {
  const { lines, version } = store.shown.value;
  const find = param("find").toLowerCase();
  const at = param("at");
  const [text, setText] = useState(param("find"));
  const [follows, setFollows] = useState(at === "");
  const [hit, setHit] = useState(0);
  const scroller = useRef(null);
  const search = useRef(null);
  const { from, to } = useVisibleRows(scroller, lines.length, kLineHeight);

  const hits = useMemo(() => {
    if (!find) return [];
    const found = [];
    lines.forEach((line, index) => line.text.toLowerCase().includes(find) && found.push(index));
    return found;
  }, [find, version]);
  const place = Math.min(hit, Math.max(0, hits.length - 1));
  const marked = useMemo(() => (at === "" ? -1 : lines.findIndex(({ key }) => key === at)), [at, version]);

  useLayoutEffect(() => {
    if (follows && scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [follows, version]);
  useEffect(() => {
    if (marked >= 0) showRow(scroller.current, marked + 6, kLineHeight);
  }, [marked]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== param("find")) {
        setParams({ find: text });
        setHit(0);
      }
    }, 200);
    return () => clearTimeout(timer);
  }, [text]);

  const move = (by) => {
    if (hits.length === 0) return;
    const next = (place + by + hits.length) % hits.length;
    setHit(next);
    setFollows(false);
    showRow(scroller.current, hits[next] + 4, kLineHeight);
    showRow(scroller.current, Math.max(0, hits[next] - 4), kLineHeight);
  };
  useKeys([
    { key: "/", does: "search the log", action: () => search.current?.focus() },
    { key: "n", does: "next hit", action: () => move(1) },
    { key: "N", does: "hit before", action: () => move(-1) },
    { key: "f", does: "follow the end", action: () => setFollows(true) },
  ]);
  const scroll = ({ currentTarget: element }) => {
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 4;
    if (isAtEnd !== follows && at === "") setFollows(isAtEnd);
  };
  return html` <input
      ref=${search}
      class="input log-search"
      type="search"
      placeholder="Search"
      aria-label="Search the log"
      value=${text}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && move(event.shiftKey ? -1 : 1)}
    />
    ${
      find &&
      html`<span class="num dim" aria-live="polite"
          >${hits.length === 0 ? "no hit" : `${place + 1} of ${number(hits.length)}`}</span
        >
        <button type="button" class="button button-small" onClick=${() => move(-1)} aria-label="Hit before">↑</button>
        <button type="button" class="button button-small" onClick=${() => move(1)} aria-label="Next hit">↓</button>`
    }
    <span class="spacer"></span>
    <span class="dim num">${number(lines.length)} lines${isLive && !store.isOver.value ? ", live" : ""}</span>
    <label class="check"
      ><input
        type="checkbox"
        checked=${follows}
        onChange=${(event) => {
          setFollows(event.target.checked);
          if (event.target.checked && at) setParams({ at: "" });
        }}
      />
      Follow</label
    >
    <button
      type="button"
      class="button button-small"
      onClick=${() => download(`${file}.log`, lines.map((line) => line.text).join("\n") + "\n", "text/plain")}
    >
      Save
    </button>
    <div class="log-box">
      <${ErrorBox} error=${store.error.value} />
      ${
        store.isCut.value &&
        html`<p class="log-cut">
          The beginning is left out. ${" "}<button
            type="button"
            class="link"
            onClick=${() => setParams({ from: "start" })}
          >
            Load the whole log
          </button>
        </p>`
      }
      <div
        class="log-scroll"
        ref=${scroller}
        onScroll=${scroll}
        tabindex="0"
        role="log"
        aria-label="Lines of the log"
        aria-live="off"
      >
        ${lines.length === 0 &&
          html`<p class="dim log-nothing">${store.isLoading.value ? "Loading" : "Nothing was written."}</p>`}
        <div style=${{ height: `${lines.length * kLineHeight}px`, position: "relative" }}>
          <div style=${{ transform: `translateY(${from * kLineHeight}px)` }}>
            ${lines.slice(from, to).map((line, index) => {
              const isHit = find && hits[place] === from + index;
              return html`<div
                key=${line.key}
                class=${classes("log-line", line.key === at && "log-marked", isHit && "log-hit")}
              >
                <a
                  class="log-number num"
                  href=${withParams({ at: line.key })}
                  title="Link to this line"
                  onClick=${(event) => {
                    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                    event.preventDefault();
                    setFollows(false);
                    setParams({ at: line.key });
                  }}
                  >${store.isCut.value ? "·" : from + index + 1}</a
                >
                ${hasRanks && html`<span class=${`log-rank log-rank-${line.rank % 6}`}>${line.rank}</span>`}
                <span class="log-text"><${LogText} pieces=${line.pieces} find=${find} /></span>
              </div>`;
            })}
          </div>
        </div>
      </div>
    </div>`;
}
