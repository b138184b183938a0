// Works out the figures of a replay and prints them.
#include "tests/replay/score.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/duration.h"

namespace trainyard::replay {
namespace {

// Jain's index in thousandths.
int64_t JainIndex(const std::vector<UserShare>& shares) {
  int64_t sum = 0;
  int64_t squares = 0;
  int64_t users = 0;
  for (const UserShare& share : shares) {
    if (share.due_us == 0) continue;
    ++users;
    sum += share.served();
    squares += share.served() * share.served();
  }
  return squares == 0 ? 1000 : sum * sum * 1000 / (users * squares);
}

int64_t Thousandths(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<int64_t>(static_cast<__int128>(part) * 1000 / whole);
}

std::vector<WaitClass> Waits(const Trace& trace, const ReplayResult& result) {
  std::vector<int64_t> all;
  std::map<int32_t, std::vector<int64_t>> by_priority;
  std::map<int32_t, std::vector<int64_t>> by_width;
  for (const JobResult& job : result.jobs) {
    if (job.placed_us < 0) continue;
    const TraceJob& spec = trace.jobs[static_cast<size_t>(job.trace_job)];
    const int64_t wait_us = job.placed_us - job.ready_us;
    all.push_back(wait_us);
    by_priority[spec.priority].push_back(wait_us);
    by_width[spec.demand.count].push_back(wait_us);
  }
  std::vector<WaitClass> waits;
  waits.push_back({"all", SpreadOf(std::move(all))});
  for (auto& [priority, samples] : by_priority) {
    waits.push_back({absl::StrCat("priority ", priority), SpreadOf(std::move(samples))});
  }
  for (auto& [width, samples] : by_width) {
    waits.push_back(
        {absl::StrCat(width, width == 1 ? " device" : " devices"), SpreadOf(std::move(samples))});
  }
  return waits;
}

std::string Percent(int64_t thousandths) {
  return absl::StrFormat("%d.%d %%", thousandths / 10, thousandths % 10);
}
std::string Time(int64_t us) {
  return us == 0 ? "0" : DurationText(absl::Microseconds(us));
}
std::string Milliseconds(int64_t ns) {
  return absl::StrFormat("%.2f", static_cast<double>(ns) / 1e6);
}
std::string DeviceHours(int64_t us) {
  return absl::StrFormat("%.2f h", static_cast<double>(us) / static_cast<double>(core::kHour));
}

using Row = std::vector<std::string>;

std::vector<Row> Rows(const std::vector<std::pair<std::string, Score>>& scores) {
  std::vector<Row> rows;
  const auto add = [&](std::string name, const auto& figure) {
    Row& row = rows.emplace_back();
    row.push_back(std::move(name));
    for (const auto& [policy, score] : scores) row.push_back(figure(score));
  };
  Row head = {""};
  for (const auto& [policy, score] : scores) head.push_back(policy);
  rows.push_back(std::move(head));
  add("utilisation until the last submission",
      [](const Score& score) { return Percent(score.use_until_last_submit); });
  add("utilisation until the end", [](const Score& score) { return Percent(score.use_until_end); });
  add("makespan", [](const Score& score) { return Time(score.makespan_us); });
  for (size_t i = 0; i < scores.front().second.waits.size(); ++i) {
    const WaitClass& wait_class = scores.front().second.waits[i];
    add(absl::StrCat("wait, ", wait_class.name, " (", wait_class.wait.count, ")"),
        [i](const Score& score) {
          const Spread& wait = score.waits[i].wait;
          return absl::StrCat(Time(wait.p50), " / ", Time(wait.p90), " / ", Time(wait.p99), " / ",
                              Time(wait.max));
        });
  }
  add("fairness", [](const Score& score) {
    return absl::StrFormat("%d.%03d", score.fairness / 1000, score.fairness % 1000);
  });
  add("least served user", [](const Score& score) {
    return absl::StrCat(score.least_served_user, " ", Percent(score.least_served));
  });
  add("preemptions", [](const Score& score) { return absl::StrCat(score.preempted.stops); });
  add("resizes", [](const Score& score) { return absl::StrCat(score.resized.stops); });
  add("work lost by both", [](const Score& score) {
    return DeviceHours(score.preempted.work_us + score.resized.work_us);
  });
  add("work lost by one job at most",
      [](const Score& score) { return DeviceHours(score.lost_most_us); });
  add("passes", [](const Score& score) { return absl::StrCat(score.pass_ns.count); });
  add("ms a pass: mean / p99 / max", [](const Score& score) {
    const Spread& ns = score.pass_ns;
    return absl::StrCat(Milliseconds(ns.mean), " / ", Milliseconds(ns.p99), " / ",
                        Milliseconds(ns.max));
  });
  add("the same with 90 % of the jobs queued", [](const Score& score) {
    const Spread& ns = score.pass_ns_long_queue;
    if (ns.count == 0) return std::string("-");
    return absl::StrCat(Milliseconds(ns.mean), " / ", Milliseconds(ns.p99), " / ",
                        Milliseconds(ns.max));
  });
  return rows;
}

std::string Heading(const Trace& trace) {
  int64_t jobs = 0;
  std::set<std::string> users;
  for (const TraceJob& job : trace.jobs) {
    jobs += job.size();
    users.insert(job.user);
  }
  int64_t workers = 0;
  for (const TraceWorkers& group : trace.workers) workers += group.count;
  return absl::StrCat(trace.name.empty() ? "trace" : trace.name, ": ", jobs, " jobs of ",
                      users.size(), " users, ", workers, workers == 1 ? " worker, " : " workers, ",
                      trace.devices(), " devices; last submission after ",
                      trace.jobs.empty() ? "0" : Time(trace.jobs.back().submit_us),
                      "; waits as p50 / p90 / p99 / max");
}

// Columns as wide as need be; bytes are characters here.
std::string TextTable(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string MarkdownTable(const std::vector<Row>& rows) {
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) absl::StrAppend(&text, "| ", cell, " ");
    absl::StrAppend(&text, "|\n");
    if (i > 0) continue;
    for (size_t c = 0; c < rows[i].size(); ++c) absl::StrAppend(&text, "|---");
    absl::StrAppend(&text, "|\n");
  }
  return text;
}

nlohmann::ordered_json SpreadJson(const Spread& spread) {
  return {{"count", spread.count}, {"mean", spread.mean}, {"p50", spread.p50},
          {"p90", spread.p90},     {"p99", spread.p99},   {"max", spread.max}};
}

nlohmann::ordered_json LossJson(const Loss& loss) {
  return {{"stops", loss.stops}, {"lost_device_us", loss.work_us}};
}

std::string Json(const Trace& trace, const std::vector<std::pair<std::string, Score>>& scores) {
  nlohmann::ordered_json json;
  json["trace"] = trace.name;
  for (const auto& [policy, score] : scores) {
    nlohmann::ordered_json& out = json["policies"][policy];
    out["use_until_last_submit_thousandths"] = score.use_until_last_submit;
    out["use_until_end_thousandths"] = score.use_until_end;
    out["makespan_us"] = score.makespan_us;
    for (const WaitClass& wait : score.waits) out["wait_us"][wait.name] = SpreadJson(wait.wait);
    out["fairness_thousandths"] = score.fairness;
    out["least_served_thousandths"] = score.least_served;
    out["least_served_user"] = score.least_served_user;
    out["preempted"] = LossJson(score.preempted);
    out["resized"] = LossJson(score.resized);
    out["lost_most_device_us"] = score.lost_most_us;
    out["ended_well"] = score.ended_well;
    out["pass_ns"] = SpreadJson(score.pass_ns);
    out["pass_ns_long_queue"] = SpreadJson(score.pass_ns_long_queue);
    out["turns"] = score.turns;
  }
  return json.dump(2) + "\n";
}

}  // namespace

Spread SpreadOf(std::vector<int64_t> samples) {
  Spread spread;
  if (samples.empty()) return spread;
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<int64_t>(samples.size());
  const auto at = [&](int64_t percent) {
    return samples[static_cast<size_t>(std::max<int64_t>((count * percent + 99) / 100 - 1, 0))];
  };
  spread.count = count;
  spread.p50 = at(50);
  spread.p90 = at(90);
  spread.p99 = at(99);
  spread.max = samples.back();
  int64_t sum = 0;
  for (const int64_t sample : samples) sum += sample;
  spread.mean = sum / count;
  return spread;
}

Score ScoreOf(const Trace& trace, const ReplayResult& result) {
  Score score;
  const int64_t devices = trace.devices();
  int64_t work_us = 0;
  for (const JobResult& job : result.jobs) {
    if (job.state == "SUCCEEDED") {
      ++score.ended_well;
      work_us += trace.jobs[static_cast<size_t>(job.trace_job)].work_us;
    }
    score.lost_most_us = std::max(score.lost_most_us, job.lost_us);
  }
  score.use_until_last_submit =
      Thousandths(result.work_until_last_submit_us, devices * result.last_submit_us);
  score.use_until_end = Thousandths(work_us, devices * result.makespan_us);
  score.makespan_us = result.makespan_us;
  score.waits = Waits(trace, result);
  score.fairness = JainIndex(result.shares);
  score.least_served = 1000;
  score.least_served_user = "all";
  for (const UserShare& share : result.shares) {
    if (share.served() >= score.least_served) continue;
    score.least_served = share.served();
    score.least_served_user = share.user;
  }
  score.preempted = result.preempted;
  score.resized = result.resized;
  score.turns = result.turns;
  std::vector<int64_t> passes;
  std::vector<int64_t> long_queue;
  for (const PassTime& pass : result.passes) {
    passes.push_back(pass.ns);
    if (pass.queued * 10 >= static_cast<int64_t>(result.jobs.size()) * 9) {
      long_queue.push_back(pass.ns);
    }
  }
  score.pass_ns = SpreadOf(std::move(passes));
  score.pass_ns_long_queue = SpreadOf(std::move(long_queue));
  return score;
}

const Spread& WaitOf(const Score& score, absl::string_view wait_class) {
  for (const WaitClass& wait : score.waits) {
    if (wait.name == wait_class) return wait.wait;
  }
  CheckFailed(__FILE__, __LINE__, absl::StrCat("no class '", wait_class, "' in the score"));
}

absl::StatusOr<std::string> Compare(const Trace& trace,
                                    const std::vector<std::pair<std::string, Score>>& scores,
                                    absl::string_view format) {
  if (format == "text") {
    return absl::StrCat(Heading(trace), "\n\n", TextTable(Rows(scores)));
  }
  if (format == "markdown") {
    return absl::StrCat(Heading(trace), ".\n\n", MarkdownTable(Rows(scores)));
  }
  if (format == "json") return Json(trace, scores);
  return absl::InvalidArgumentError(
      absl::StrCat("--format '", format, "': expected text, markdown or json"));
}

}  // namespace trainyard::replay
