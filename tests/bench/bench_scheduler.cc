// Compares scheduling policies: replays one workload through the real core in virtual time, once
// with each policy, and prints the figures of each. docs/scheduling.md describes the workloads and
// the figures. `--help` lists the flags.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/run_main.h"
#include "common/base/status_macros.h"
#include "tests/replay/generators.h"
#include "tests/replay/replay.h"
#include "tests/replay/score.h"
#include "tests/replay/trace.h"

namespace trainyard::replay {
namespace {

struct Arguments {
  std::string trace = "lab-day";
  GeneratorOptions generator;
  std::string policies = "fifo,priority,full";
  int64_t tick_ms = 1000;
  std::string format = "text";
  std::string write_trace;
  std::string history;
};

// The exit code if there is nothing left to do.
std::optional<int> Parse(int argc, char** argv, Arguments& arguments) {
  CLI::App app("Replays one workload in virtual time, once a policy, and compares them.");
  app.add_option("--trace", arguments.trace, "lab-day, hostile-mix, large, or a file");
  app.add_option("--seed", arguments.generator.seed, "Of the workload")->check(CLI::PositiveNumber);
  app.add_option("--jobs", arguments.generator.jobs, "Of large")->check(CLI::PositiveNumber);
  app.add_option("--workers", arguments.generator.workers, "Of large")->check(CLI::PositiveNumber);
  app.add_option("--policies", arguments.policies,
                 "fifo, priority, full, and full-X: without X of priorities, fair_share, backfill, "
                 "preemption, elastic, guests");
  app.add_option("--tick_ms", arguments.tick_ms, "Reports of workers are gathered for so long")
      ->check(CLI::PositiveNumber);
  app.add_option("--format", arguments.format, "text, markdown or json");
  app.add_option("--write-trace", arguments.write_trace, "Write the workload to a file first");
  app.add_option("--history", arguments.history,
                 "Write the events of all replays, as the server would, to a file");
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::nullopt;
}

absl::StatusOr<core::PolicyOptions> FindPolicy(const std::string& name) {
  core::PolicyOptions options;
  if (name == "full") return options;
  if (name == "fifo" || name == "priority") {
    return core::PolicyOptions{name == "priority", false, false, false, false};
  }
  bool* part = name == "full-priorities"   ? &options.priorities
               : name == "full-fair_share" ? &options.fair_share
               : name == "full-backfill"   ? &options.backfill
               : name == "full-preemption" ? &options.preemption
               : name == "full-elastic"    ? &options.elastic
               : name == "full-guests"     ? &options.guests
                                           : nullptr;
  if (part == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", name,
                     "': expected fifo, priority, full, or full-X with X of priorities, "
                     "fair_share, backfill, preemption, elastic, guests"));
  }
  *part = false;
  return options;
}

// The name of a workload, or else a file.
absl::StatusOr<Trace> LoadTrace(const Arguments& arguments) {
  absl::StatusOr<Trace> made = GenerateTrace(arguments.trace, arguments.generator);
  if (made.ok()) return made;
  std::ifstream file(arguments.trace);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("--trace ", made.status().message(), ", or a file that can be read"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<Trace> read = ParseTrace(text.str());
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(arguments.trace, ": ", read.status().message()));
  }
  return read;
}

// "full 303.0 jobs/7 JOB_RUNNING scheduler: ..."
std::function<void(const core::EventRecord&)> Writer(const std::string& policy,
                                                     std::ofstream& file) {
  return [policy, &file](const core::EventRecord& event) {
    file << policy << ' ' << (event.time_us - kStartOfTrace) / core::kSecond << ' '
         << event.resource << ' ' << event.type << ' ' << event.actor << ": " << event.message
         << '\n';
  };
}

absl::Status Run(const Arguments& arguments) {
  TY_ASSIGN_OR_RETURN(const Trace trace, LoadTrace(arguments));
  if (!arguments.write_trace.empty()) {
    std::ofstream file(arguments.write_trace);
    file << FormatTrace(trace);
    if (!file.flush()) {
      return absl::UnavailableError(
          absl::StrCat("--write-trace ", arguments.write_trace, ": cannot be written"));
    }
  }
  std::vector<std::pair<std::string, ReplayOptions>> policies;
  const std::vector<std::string> names = absl::StrSplit(arguments.policies, ',');
  for (const std::string& name : names) {
    ReplayOptions options;
    TY_ASSIGN_OR_RETURN(options.policy, FindPolicy(name));
    options.tick_us = arguments.tick_ms * core::kMillisecond;
    policies.emplace_back(name, options);
  }
  std::ofstream history;
  if (!arguments.history.empty()) history.open(arguments.history);
  std::vector<std::pair<std::string, Score>> scores;
  for (auto& [name, options] : policies) {
    if (history.is_open()) options.on_event = Writer(name, history);
    const absl::StatusOr<ReplayResult> result = Replay(trace, options);
    if (!result.ok()) {
      return absl::Status(result.status().code(),
                          absl::StrCat("policy ", name, ": ", result.status().message()));
    }
    scores.emplace_back(name, ScoreOf(trace, *result));
  }
  TY_ASSIGN_OR_RETURN(const std::string table, Compare(trace, scores, arguments.format));
  std::fputs(table.c_str(), stdout);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (const auto exit_code = Parse(argc, argv, arguments)) return *exit_code;
  const absl::Status status = Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_scheduler: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace
}  // namespace trainyard::replay

int main(int argc, char** argv) {
  return trainyard::RunMain("bench_scheduler", trainyard::replay::Main, argc, argv);
}
