// Measures a training step of the cuda backend on made-up batches: its time, its parts, and how far
// that is from what the card could do at best. docs/gpu_testing.md explains the results;
// bench_gpu.py compares them with PyTorch's. `--help` lists the flags.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "common/base/run_main.h"
#include "common/base/status_macros.h"
#include "tests/bench/gpu/plan_report.h"
#include "tests/bench/gpu/rates.h"
#include "tests/bench/gpu/step_count.h"
#include "tests/bench/gpu/step_report.h"
#include "tests/bench/gpu/step_timer.h"

namespace trainyard::engine::bench {
namespace {

struct Arguments {
  TimerOptions timer = {.net = ""};
  std::string precision = "bf16";
  std::string fusions = "faster";
  int64_t steps = 0;
  int runs = 5;
  double seconds = 0.5;
  bool is_resident = false;
  bool no_graph = false;
  bool no_branches = false;
  bool no_autotuning = false;
  bool allow_fallbacks = false;
  bool counts = false;
  bool profile = false;
  int profile_runs = 5;
  bool serve = false;
  bool roofline = false;
  RateSizes sizes = {};
  int64_t copy_mib = 1024;
  std::string rates_path;
  std::string json_path;
};

// The rate or time that a step should reach on one H200 (docs/performance.md).
struct Goal {
  const char* net;
  int rows;
  Precision precision;
  double units_per_second;  // 0: the goal is the time
  double milliseconds;
};
constexpr Goal kGoals[] = {
    {"resnet50", 256, Precision::kBf16, 6500, 0},   {"resnet50", 256, Precision::kF16, 7500, 0},
    {"wrn-28-10", 128, Precision::kBf16, 11000, 0}, {"googlenet", 128, Precision::kBf16, 17000, 0},
    {"googlenet", 43, Precision::kBf16, 0, 2.8},    {"convnet", 64, Precision::kBf16, 0, 0.060},
    {"gpt2", 16, Precision::kBf16, 500000, 0}};

// The seconds that a step should take, or 0 if there is no goal.
double GoalSeconds(const TimerOptions& options, int64_t units) {
  for (const Goal& goal : kGoals) {
    if (goal.net != options.net || goal.rows != options.rows ||
        goal.precision != options.precision) {
      continue;
    }
    return goal.units_per_second > 0 ? static_cast<double>(units) / goal.units_per_second
                                     : goal.milliseconds * 1e-3;
  }
  return 0;
}

std::string BesideGoal(double goal, double seconds) {
  if (goal == 0) return "";
  return absl::StrFormat("; goal %.4f ms: %.2fx of its speed", goal * 1e3, goal / seconds);
}

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Makes one run for each line on stdin, and answers with its milliseconds a step.
absl::StatusOr<std::vector<double>> Serve(StepTimer& timer, int64_t steps, Source source) {
  std::vector<double> runs;
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    TY_ASSIGN_OR_RETURN(const double seconds, timer.Time(steps, source));
    runs.push_back(seconds);
    std::printf("%.6f\n", seconds * 1e3);
    std::fflush(stdout);
  }
  if (runs.empty()) return absl::InvalidArgumentError("--serve: expected lines on the input");
  return runs;
}

absl::StatusOr<std::vector<double>> Measure(const Arguments& arguments, StepTimer& timer,
                                            int64_t steps) {
  const Source source = arguments.is_resident ? Source::kResident : Source::kHost;
  if (arguments.serve) return Serve(timer, steps, source);
  std::vector<double> runs;
  for (int run = 0; run < arguments.runs; ++run) {
    TY_ASSIGN_OR_RETURN(const double seconds, timer.Time(steps, source));
    runs.push_back(seconds);
  }
  return runs;
}

void PrintStep(const Arguments& arguments, const StepTimer& timer, double seconds,
               const StepReport& report) {
  const TimerOptions& options = arguments.timer;
  std::printf("%s %s batch %d, %s, %s%s: %.4f ms a step, %.0f %s/s%s\n", options.net.c_str(),
              arguments.precision.c_str(), options.rows,
              arguments.is_resident ? "resident inputs" : "inputs from the host",
              options.captures ? "as a graph" : "call by call",
              options.deterministic ? ", deterministic" : "", seconds * 1e3,
              static_cast<double>(timer.units()) / seconds,
              timer.model().vocabulary > 0 ? "tokens" : "images",
              BesideGoal(GoalSeconds(options, timer.units()), seconds).c_str());
  std::printf("loss %.4f; compiled in %.2f s; %lld calls, %lld nodes of the graph a step\n",
              timer.last_loss(), timer.compile_seconds(), static_cast<long long>(timer.calls()),
              static_cast<long long>(timer.graph_nodes()));
  std::printf("work of a step: %.2f GFLOP, %.3f GB moved, each tensor once; %.1f TFLOP/s reached\n",
              report.total.flops * 1e-9, report.total.bytes * 1e-9,
              report.total.flops / seconds * 1e-12);
  if (report.total.roofline_seconds > 0) {
    std::printf("roofline: %.4f ms a step, %.0f %% of it reached\n",
                report.total.roofline_seconds * 1e3, 100 * report.total.roofline_seconds / seconds);
  }
  std::printf("memory of the device in use: %.0f MiB; planned:\n%s",
              static_cast<double>(timer.device_bytes()) / (1 << 20),
              RenderMemoryPlan(timer.memory_plan()).c_str());
}

nlohmann::json FallbacksJson(const StepTimer& timer) {
  nlohmann::json list = nlohmann::json::array();
  for (const Fallback& fallback : timer.fallbacks()) {
    list.push_back({{"layer", fallback.layer}, {"op", fallback.op}, {"reason", fallback.reason}});
  }
  return list;
}

// A time that is mostly that of a fallback says nothing about the backend, so it is an error unless
// the caller expects it.
absl::Status CheckFallbacks(const Arguments& arguments, const StepTimer& timer) {
  const std::vector<Fallback> fallbacks = timer.fallbacks();
  if (fallbacks.empty() || arguments.allow_fallbacks) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cuDNN refused ", fallbacks.size(), " operations, so slower kernels compute them: ",
      absl::StrJoin(fallbacks, "; ",
                    [](std::string* out, const Fallback& fallback) {
                      absl::StrAppend(out, FallbackText(fallback));
                    }),
      "; --allow-fallbacks accepts that"));
}

nlohmann::json StepJson(const Arguments& arguments, const StepTimer& timer,
                        const std::vector<double>& runs, int64_t steps, const StepReport& report) {
  const double seconds = Middle(runs);
  nlohmann::json memory;
  for (const auto& [name, bytes] : timer.memory_plan().categories()) {
    memory[std::string(name)] = bytes;
  }
  return {{"net", arguments.timer.net},
          {"batch", arguments.timer.rows},
          {"precision", arguments.precision},
          {"resident", arguments.is_resident},
          {"graph", arguments.timer.captures},
          {"branches", arguments.timer.branches},
          {"deterministic", arguments.timer.deterministic},
          {"seconds_per_step", seconds},
          {"units_per_second", static_cast<double>(timer.units()) / seconds},
          {"goal_seconds", GoalSeconds(arguments.timer, timer.units())},
          {"runs", runs},
          {"steps_per_run", steps},
          {"loss", timer.last_loss()},
          {"compile_seconds", timer.compile_seconds()},
          {"calls", timer.calls()},
          {"fallbacks", FallbacksJson(timer)},
          {"plans", ToJson(timer.plans())},
          {"graph_nodes", timer.graph_nodes()},
          {"device_bytes", timer.device_bytes()},
          {"planned_bytes", memory},
          {"buffer_bytes", timer.memory_plan().buffers()},
          {"count", ToJson(CountWork(timer.work(), RatesOfH200(arguments.timer.precision)))},
          {"work", ToJson(report)}};
}

// Fills in `step` with all that was measured, even if the way in which it was is an error.
absl::Status RunNet(const Arguments& arguments, const Rates* rates, nlohmann::json& step) {
  TY_ASSIGN_OR_RETURN(const auto timer, StepTimer::Create(arguments.timer));
  TY_ASSIGN_OR_RETURN(const int64_t counted, timer->WarmUp(arguments.seconds));
  const int64_t steps = arguments.steps > 0 ? arguments.steps : counted;
  TY_ASSIGN_OR_RETURN(const std::vector<double> runs, Measure(arguments, *timer, steps));
  std::vector<cuda::CallTime> times;
  if (arguments.profile) {
    TY_ASSIGN_OR_RETURN(times, timer->Profile(arguments.profile_runs));
  }
  const StepReport report =
      MakeReport(StepWork(timer->model(), timer->optimizer(), arguments.timer.precision,
                          arguments.timer.rows, rates),
                 times);
  PrintStep(arguments, *timer, Middle(runs), report);
  constexpr size_t kSlowestCalls = 15;
  if (arguments.timer.verifies_plans) std::printf("%s\n", PlansLine(timer->plans()).c_str());
  if (arguments.profile) {
    std::printf("\n%s\n%s", RenderReport(report, kSlowestCalls).c_str(),
                RenderPlans(timer->plans()).c_str());
  }
  step = StepJson(arguments, *timer, runs, steps, report);
  absl::Status status = CheckFallbacks(arguments, *timer);
  status.Update(CheckVerified(timer->plans()));
  return status;
}

absl::Status PrintCount(const Arguments& arguments, nlohmann::json& result) {
  TY_ASSIGN_OR_RETURN(const StepCount count, CountStep(arguments.timer));
  std::printf("%s\n%s\n", RenderCount(count).c_str(), CountLine(arguments.timer, count).c_str());
  result["count"] = ToJson(count);
  return absl::OkStatus();
}

absl::Status Run(Arguments arguments) {
  if (arguments.timer.net.empty() && !arguments.roofline) {
    return absl::InvalidArgumentError("expected --net or --roofline");
  }
  for (const Precision precision :
       {Precision::kF32, Precision::kTf32, Precision::kBf16, Precision::kF16}) {
    if (PrecisionName(precision) == arguments.precision) arguments.timer.precision = precision;
  }
  if (arguments.fusions == "always") arguments.timer.fusions = Fusions::kAlways;
  if (arguments.fusions == "never") arguments.timer.fusions = Fusions::kNever;
  arguments.timer.captures = !arguments.no_graph;
  arguments.timer.branches = !arguments.no_branches;
  arguments.timer.autotunes = !arguments.no_autotuning;
  if (arguments.no_autotuning && arguments.timer.verifies_plans) {
    return absl::InvalidArgumentError(
        "--verify-plans compares the candidates that are measured; leave out --no-autotuning");
  }
  arguments.sizes.copy_bytes = arguments.copy_mib << 20;
  TY_RETURN_IF_ERROR(cuda::CheckDevice());
  nlohmann::json result;
  std::optional<Rates> rates;
  if (arguments.roofline) {
    TY_ASSIGN_OR_RETURN(rates, MeasureRates(arguments.sizes));
    std::printf("%s\n", RenderRates(*rates).c_str());
  } else if (!arguments.rates_path.empty()) {
    TY_ASSIGN_OR_RETURN(rates, ReadRates(arguments.rates_path));
  }
  if (rates.has_value()) result["rates"] = ToJson(*rates);
  absl::Status status;
  if (!arguments.timer.net.empty()) {
    nlohmann::json step;
    status = arguments.counts ? PrintCount(arguments, result)
                              : RunNet(arguments, rates.has_value() ? &*rates : nullptr, step);
    if (!step.is_null()) result["step"] = std::move(step);
  }
  const bool has_result = !result.empty();
  if (!arguments.json_path.empty() && has_result) {
    status.Update(WriteFileAtomically(arguments.json_path, result.dump(1)));
  }
  return status;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  TimerOptions& timer = arguments.timer;
  CLI::App app("Times training steps of the cuda backend on made-up batches.");
  app.add_option("--net", timer.net, "resnet50, wrn-28-10, googlenet, gpt2, ...");
  app.add_option("--batch", timer.rows, "rows of a step")->check(CLI::Range(1, 65536));
  app.add_option("--precision", arguments.precision)
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}));
  app.add_option(
         "--fusions", arguments.fusions,
         "batch norm becomes a part of convolutions if cuDNN can: where that was measured to "
         "be faster, always, or never")
      ->check(CLI::IsMember({"faster", "always", "never"}));
  app.add_option("--steps", arguments.steps, "of a run; 0: as many as fill --seconds")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--runs", arguments.runs, "of which the middle counts")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", arguments.seconds, "of a run")->check(CLI::Range(0.0, 60.0));
  app.add_flag("--resident", arguments.is_resident, "inputs stay on the device");
  app.add_flag("--no-graph", arguments.no_graph, "enqueue a step call by call");
  app.add_flag("--no-branches", arguments.no_branches,
               "one call after the other, also within a graph");
  app.add_flag("--deterministic", timer.deterministic, "the same bits each time");
  app.add_flag("--no-autotuning", arguments.no_autotuning, "take each library's first guess");
  app.add_flag(
      "--verify-plans", timer.verifies_plans,
      "compare what the candidates for each plan compute with our own kernels and with each "
      "other, and refuse those that differ");
  app.add_option("--plans", timer.plan_cache_folder, "folder that keeps the chosen plans");
  app.add_flag("--allow-fallbacks", arguments.allow_fallbacks,
               "succeed though cuDNN refused operations");
  app.add_flag("--count", arguments.counts,
               "run nothing; count kernels and bytes, and estimate the time on an H200");
  app.add_flag("--profile", arguments.profile, "tell what each call takes");
  app.add_option("--profile-runs", arguments.profile_runs)->check(CLI::Range(1, 100));
  app.add_flag("--serve", arguments.serve, "one run for each line on the input");
  app.add_flag("--roofline", arguments.roofline, "measure the card's rates first");
  app.add_option("--rates", arguments.rates_path, "file with rates that --roofline measured");
  app.add_option("--copy-mib", arguments.copy_mib, "that --roofline copies")
      ->check(CLI::Range(1, 16384));
  app.add_option("--matrix", arguments.sizes.matrix, "rows that --roofline multiplies")
      ->check(CLI::Range(8, 32768));
  app.add_option("--nodes", arguments.sizes.nodes, "of the graph that --roofline launches")
      ->check(CLI::Range(1, 100000));
  app.add_option("--rate-seconds", arguments.sizes.seconds, "of each run of --roofline")
      ->check(CLI::Range(0.0, 10.0));
  app.add_option("--json", arguments.json_path, "file to write");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bench_gpu: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace trainyard::engine::bench

int main(int argc, char** argv) {
  return trainyard::RunMain("bench_gpu", trainyard::engine::bench::Main, argc, argv);
}
