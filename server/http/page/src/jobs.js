// Holds the list of runs: a page of it at once, the rest behind it, and then each change as it happens.
import { signal } from "@preact/signals";
import { call, isAway } from "./api.js";
import { row } from "./job_row.js";
import { openStream } from "./stream.js";

const kFirstPage = 100;
const kNextPage = 1000;
// More rows are no list any more; the filter finds the others.
export const kRowsMax = 10000;
// A list with a condition asks the server again this long after a change, since only the server knows the condition.
const kAskAgainMs = 2500;

export class JobList {
  rows = signal([]);
  // Jobs on the server that match; undefined while it is not known.
  total = signal(undefined);
  isLoading = signal(true);
  error = signal(null);

  #query = null;
  #byName = new Map();
  #close = null;
  #abort = null;
  #frame = 0;
  #askTimer = null;

  // Begins to list what the query says: {where, states, user, orderBy}.
  open(query) {
    if (JSON.stringify(query) === JSON.stringify(this.#query)) return;
    this.#query = query;
    this.#load(true);
  }

  close() {
    this.#abort?.abort();
    this.#close?.();
    clearTimeout(this.#askTimer);
    this.#query = null;
  }

  // Loads everything anew behind what is shown, after a time without the server.
  reload() {
    if (this.#query) this.#load(false);
  }

  #request(token, size) {
    const { where, states, user, orderBy } = this.#query;
    const request = { page_size: size };
    if (token) request.page_token = token;
    else request.count_more = true;
    if (where) request.where = where;
    if (states?.length) request.states = states;
    if (user) request.user = user;
    if (orderBy) request.order_by = orderBy;
    return request;
  }

  async #load(isNew) {
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    this.error.value = null;
    this.isLoading.value = true;
    try {
      let jobs = new Map();
      let token = "";
      let size = kFirstPage;
      do {
        const answer = await call("JobService/ListJobs", this.#request(token, size), { signal: abort.signal });
        if (abort.signal.aborted) return;
        for (const job of answer.jobs ?? []) jobs.set(job.name, row(job));
        if (token === "") {
          this.total.value = (answer.jobs?.length ?? 0) + Number(answer.more_jobs ?? 0);
          this.#watch(answer.jobs ?? []);
        }
        token = answer.next_page_token ?? "";
        size = kNextPage;
        if (isNew || token === "" || jobs.size >= kRowsMax) {
          this.#byName = new Map(jobs);
          this.#show();
        }
      } while (token !== "" && jobs.size < kRowsMax);
      this.isLoading.value = false;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.isLoading.value = false;
      this.error.value = error;
      if (isNew && !isAway(error)) {
        this.#byName.clear();
        this.#show();
      }
    }
  }

  // A job's etag is the revision of its last change, so the watch may begin at the largest one of the newest page.
  #watch(jobs) {
    this.#close?.();
    const revision = jobs.reduce((most, job) => Math.max(most, Number(job.etag ?? 0)), 0);
    this.#close = openStream("JobService/WatchJobs", revision > 0 ? { start_revision: String(revision) } : {}, {
      onMessage: (message) => this.#take(message),
      onError: (error) => {
        this.error.value = error;
      },
    });
  }

  #take({ job, deleted }) {
    if (!job) return;
    const { where, states, user } = this.#query ?? {};
    const isKnown = this.#byName.has(job.name);
    if (deleted) {
      if (isKnown) {
        this.#byName.delete(job.name);
        if (this.total.value !== undefined) this.total.value -= 1;
      }
    } else if (isKnown && !states?.length) {
      this.#byName.set(job.name, row(job));
      if (where) this.#askSoon();
    } else {
      const fits = (!user || job.user === user) && (!states?.length || states.includes(job.state));
      if (where && fits) {
        this.#askSoon();
      } else if (fits) {
        if (!isKnown && this.total.value !== undefined) this.total.value += 1;
        this.#byName.set(job.name, row(job));
      } else if (isKnown) {
        this.#byName.delete(job.name);
        if (this.total.value !== undefined) this.total.value -= 1;
      }
    }
    if (this.#frame === 0) this.#frame = setTimeout(() => this.#show(), 120);
  }

  #askSoon() {
    if (this.#askTimer) return;
    this.#askTimer = setTimeout(() => {
      this.#askTimer = null;
      this.reload();
    }, kAskAgainMs);
  }

  #show() {
    clearTimeout(this.#frame);
    this.#frame = 0;
    this.rows.value = [...this.#byName.values()];
  }
}
