// Holds the metrics of one job and keeps them up to date.
import { signal } from "@preact/signals";
import { call, isAway } from "../api.js";
import { isHidden } from "../connection.js";
import { openStream } from "../stream.js";
import { asNumber } from "../pure/format.js";
import { appendPoint, seriesOf } from "../pure/points.js";

// A series with so many points may have been thinned out by the server.
const kPointsMax = 2000;
const kPollMs = 5000;
const kShowMs = 250;

export class Metrics {
  // A map of names to {steps, times, values, attempts, isThinned}; replaced when anything in it changes.
  series = signal(new Map());
  isLoading = signal(true);
  error = signal(null);

  #name;
  #names;
  #polls;
  #close = () => {};
  #timer = null;
  #showTimer = null;
  #isClosed = false;

  // Follows the metrics of a job, or only those named. With `polls` it never holds a stream open.
  constructor(name, { follow, names, polls = false }) {
    this.#name = name;
    this.#names = names;
    this.#polls = polls;
    this.#load(follow);
  }

  close() {
    this.#isClosed = true;
    this.#close();
    clearTimeout(this.#timer);
    clearTimeout(this.#showTimer);
  }

  async #load(follow) {
    try {
      const request = { name: this.#name, max_points: kPointsMax, sampling: "METRIC_SAMPLING_EXTREMES" };
      if (this.#names) request.metrics = this.#names;
      const answer = await call("JobService/QueryMetrics", request);
      if (this.#isClosed) return;
      const all = new Map();
      let isThinned = false;
      for (const { name, points } of answer.series ?? []) {
        const one = seriesOf(points ?? []);
        one.isThinned = one.steps.length >= kPointsMax;
        isThinned ||= one.isThinned;
        all.set(name, one);
      }
      this.series.value = all;
      this.error.value = null;
      this.isLoading.value = false;
      // A stream has all points since the first, so a long training is asked for its thinned series again and again.
      if (follow && (isThinned || this.#polls)) this.#poll();
      else if (follow) this.#stream();
    } catch (error) {
      if (this.#isClosed) return;
      this.isLoading.value = false;
      if (isAway(error)) this.#poll();
      else this.error.value = error;
    }
  }

  #poll() {
    this.#timer = setTimeout(() => (isHidden.value ? this.#poll() : this.#load(true)), kPollMs);
  }

  #stream() {
    const fresh = new Map();
    const request = { name: this.#name, follow: true };
    if (this.#names) request.metrics = this.#names;
    this.#close = openStream("JobService/WatchMetrics", request, {
      onMessage: ({ points }) => {
        for (const point of points ?? []) {
          let one = fresh.get(point.name);
          if (!one) fresh.set(point.name, (one = seriesOf([])));
          appendPoint(one, Number(point.step), Date.parse(point.time), asNumber(point.value), point.attempt);
        }
        if (this.#showTimer) return;
        this.#showTimer = setTimeout(() => {
          this.#showTimer = null;
          // The stream begins at the first point; until it has caught up, the series of the query are longer.
          const next = new Map(this.series.value);
          for (const [name, one] of fresh) {
            const shown = next.get(name);
            if (!shown || one.steps.length >= shown.steps.length || last(one.steps) > last(shown.steps)) {
              next.set(name, { ...one });
            }
          }
          this.series.value = next;
        }, kShowMs);
      },
      onError: (error) => {
        this.error.value = error;
      },
    });
  }
}

const last = (list) => (list.length === 0 ? -1 : list[list.length - 1]);
