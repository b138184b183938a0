// The last lines of one rank's log.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { bytesOf, LineCutter } from "../pure/lines.js";
import { openStream } from "../stream.js";
import { LogText } from "./log_text.js";

const kTailBytes = 8192;
const kTailLines = 20;

export function LogTail({ name, attempt, rank }) {
  const [lines, setLines] = useState(null);
  useEffect(() => {
    const cutter = new LineCutter();
    let all = [];
    let isFirst = true;
    return openStream(
      "JobService/TailLogs",
      { name: `${name}/attempts/${attempt}`, rank, offset: -kTailBytes },
      {
        onMessage: ({ offset, data }) => {
          all.push(...cutter.add(Number(offset ?? 0), bytesOf(data ?? "")));
          // The first piece may begin within a line.
          if (isFirst && Number(offset ?? 0) > 0) all.shift();
          isFirst = false;
        },
        onEnd: () => {
          const rest = cutter.rest();
          all = rest ? [...all, rest] : all;
          setLines(all.slice(-kTailLines));
        },
        onError: () => setLines([]),
      },
    );
  }, [name, attempt, rank]);
  if (lines === null) return html`<div class="log-lines dim">…</div>`;
  if (lines.length === 0) return html`<div class="log-lines dim">This rank has written nothing.</div>`;
  return html`<div class="log-lines" tabindex="0" role="region" aria-label="Last lines of the log">
    ${lines.map((line) => html`<div class="log-line" key=${line.offset}><${LogText} pieces=${line.pieces} /></div>`)}
  </div>`;
}
