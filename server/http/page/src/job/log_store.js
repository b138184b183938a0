// Collects the lines of logs as they come, of one rank or of several, up to a limit.
import { signal } from "@preact/signals";
import { bytesOf, LineCutter } from "../pure/lines.js";
import { openStream } from "../stream.js";

export const kLinesMax = 200000;
// So much of a long log is loaded at first; a button loads all of it.
export const kFirstBytes = 512 * 1024;

export class LogStore {
  // {lines: [{rank, offset, pieces, text}], version}; the list itself grows in place.
  shown = signal({ lines: [], version: 0 });
  isOver = signal(false);
  isLoading = signal(true);
  // True if the beginning is left out.
  isCut = signal(false);
  error = signal(null);

  #lines = [];
  #cutters = new Map();
  #rests = new Map();
  #timer = null;
  #close;

  constructor({ name, rank, isWhole, follow }) {
    const request = { name, follow };
    if (rank !== undefined) request.rank = rank;
    if (!isWhole) request.offset = -kFirstBytes;
    this.#close = openStream("JobService/TailLogs", request, {
      onMessage: (message) => this.#take(message),
      onEnd: () => {
        this.isOver.value = true;
        this.#show();
      },
      onError: (error) => {
        this.error.value = error;
        this.isLoading.value = false;
      },
    });
  }

  close() {
    this.#close();
    clearTimeout(this.#timer);
  }

  #take({ attempt, rank = 0, offset = "0", data = "" }) {
    const key = `${attempt}/${rank}`;
    let cutter = this.#cutters.get(key);
    const isFirst = !cutter;
    if (isFirst) this.#cutters.set(key, (cutter = new LineCutter()));
    const lines = cutter.add(Number(offset), bytesOf(data));
    if (isFirst && Number(offset) > 0) {
      // The first piece begins within a line.
      lines.shift();
      this.isCut.value = true;
    }
    for (const line of lines) this.#lines.push({ ...line, rank, key: `${key}/${line.offset}` });
    const rest = cutter.rest();
    if (rest) this.#rests.set(key, { ...rest, rank, key: `${key}/${rest.offset}` });
    else this.#rests.delete(key);
    if (this.#lines.length > kLinesMax) {
      this.#lines.splice(0, this.#lines.length - kLinesMax);
      this.isCut.value = true;
    }
    if (!this.#timer) this.#timer = setTimeout(() => this.#show(), 120);
  }

  #show() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.isLoading.value = false;
    const rests = [...this.#rests.values()];
    this.shown.value = {
      lines: rests.length > 0 ? [...this.#lines, ...rests] : this.#lines.slice(),
      version: this.shown.peek().version + 1,
    };
  }
}
