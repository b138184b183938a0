// Measures the time of one training step (forward, backward, update) of the cpu backend on
// synthetic batches.
//
//   bench_step [--net resnet20] [--batch 64] [--threads 1] [--steps 100] [--runs 1] [--warmup 10]
//              [--precision f32] [--bitwise] [--profile] [--memory] [--products]
// Prints one line a run: net, precision, batch, threads, ms of CPU time and of wall time a step,
// samples/s and GFLOP/s by the wall, and by how much the process grew. --products adds the time of
// only a step's convolutions and matrix products, which is the lower limit. bench_step.py sets it
// beside PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "tests/bench/bench_nets.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cpu/cpu_executable.h"
#include "worker/engine/backend/step_choices.h"
#include "worker/engine/graph/cost.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

struct Arguments {
  std::string net = "convnet";
  int batch = 64;
  int threads = 1;
  int steps = 100;
  int runs = 1;
  int warmup = 10;
  Precision precision = Precision::kF32;
  bool bitwise = false;
  bool profile = false;
  bool memory = false;
  bool products = false;
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--bitwise") {
      arguments.bitwise = true;
      continue;
    }
    if (flag == "--profile") {
      arguments.profile = true;
      continue;
    }
    if (flag == "--memory") {
      arguments.memory = true;
      continue;
    }
    if (flag == "--products") {
      arguments.products = true;
      continue;
    }
    if (i + 1 == argc) {
      return false;
    }
    const std::string value = argv[++i];
    int* number = flag == "--batch"     ? &arguments.batch
                  : flag == "--threads" ? &arguments.threads
                  : flag == "--steps"   ? &arguments.steps
                  : flag == "--runs"    ? &arguments.runs
                  : flag == "--warmup"  ? &arguments.warmup
                                        : nullptr;
    if (flag == "--net") {
      arguments.net = value;
    } else if (flag == "--precision" && (value == "f32" || value == "bf16")) {
      arguments.precision = value == "bf16" ? Precision::kBf16 : Precision::kF32;
    } else if (number == nullptr || !absl::SimpleAtoi(value, number) || *number < 1) {
      return false;
    }
  }
  return true;
}

void PrintProfile(Executable& executable, const Batch& batch, int steps) {
  auto* cpu_executable = dynamic_cast<cpu::CpuExecutable*>(&executable);
  const absl::StatusOr<std::vector<cpu::CallProfile>> calls = cpu_executable->Profile(batch, steps);
  for (const cpu::CallProfile& call : *calls) {
    std::printf("%-44s %9.1f us %8.1f GFLOP/s\n", call.name.c_str(), call.seconds * 1e6,
                call.flops / call.seconds / 1e9);
  }
}

// Returns the seconds that the convolutions, matrix products and attention of one step take.
double ProductSeconds(Executable& executable, const Batch& batch, int steps) {
  auto* cpu_executable = dynamic_cast<cpu::CpuExecutable*>(&executable);
  const absl::StatusOr<std::vector<cpu::CallProfile>> calls = cpu_executable->Profile(batch, steps);
  double seconds = 0;
  for (const cpu::CallProfile& call : *calls) {
    const bool is_product = absl::StrContains(call.name, " conv2d") ||
                            absl::StrContains(call.name, " linear") ||
                            absl::StrContains(call.name, " attention");
    seconds += is_product ? call.seconds : 0;
  }
  return seconds;
}

// Returns the peak of this process, in KiB, or 0 if the kernel does not report it. (ru_maxrss
// counts what ran before exec.)
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> kib;
  }
  return kib;
}

// Runs the steps of one run and prints the times. `memory_before` is the peak before the model was
// compiled.
absl::Status Measure(const Arguments& arguments, double flops, int64_t memory_before,
                     const std::function<absl::Status()>& step) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  for (int i = 0; i < arguments.steps; ++i) {
    if (absl::Status status = step(); !status.ok()) {
      return status;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
      arguments.steps;
  const double cpu_seconds =
      static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC / arguments.steps;
  std::printf(
      "%s %s batch %d threads %d: %.4f ms CPU %.4f ms wall %.0f samples/s %.1f GFLOP/s "
      "peak %.0f MiB\n",
      arguments.net.c_str(), arguments.precision == Precision::kBf16 ? "bf16" : "f32",
      arguments.batch, arguments.threads, cpu_seconds * 1e3, seconds * 1e3,
      arguments.batch / seconds, flops / seconds / 1e9,
      static_cast<double>(PeakMemory() - memory_before) / 1024);
  return absl::OkStatus();
}

absl::Status Run(const Arguments& arguments) {
  const int64_t before = PeakMemory();
  const absl::StatusOr<Graph> model = BuildBenchNet(arguments.net);
  if (!model.ok()) {
    return model.status();
  }
  CompileOptions options =
      OptionsOf("cpu", {.precision = arguments.precision, .deterministic = arguments.bitwise});
  options.max_rows = arguments.batch;
  options.threads = arguments.threads;
  absl::StatusOr<std::unique_ptr<Executable>> executable =
      (*MakeBackend("cpu"))->Compile(*model, {.momentum = 0.9, .weight_decay = 5e-4}, options);
  if (!executable.ok()) {
    return executable.status();
  }
  if (absl::Status status = InitializeParameters(1, **executable); !status.ok()) {
    return status;
  }
  const MadeUpBatch made_up = MakeUpBatch(*model, arguments.batch);
  const Batch batch = made_up.batch();
  auto step = [&]() -> absl::Status {
    absl::Status status = (*executable)->Accumulate(batch, 1, nullptr);
    return status.ok() ? (*executable)->Update(0.01).status() : status;
  };
  for (int i = 0; i < arguments.warmup; ++i) {
    if (absl::Status status = step(); !status.ok()) {
      return status;
    }
  }
  const double flops = GraphCost(BuildTrainingStep(*model, {}).graph, arguments.batch).flops;
  for (int run = 0; run < arguments.runs; ++run) {
    if (absl::Status status = Measure(arguments, flops, before, step); !status.ok()) {
      return status;
    }
  }
  if (arguments.profile) {
    PrintProfile(**executable, batch, arguments.steps);
  }
  if (arguments.products) {
    std::printf("products %.4f ms\n", ProductSeconds(**executable, batch, arguments.steps) * 1e3);
  }
  if (arguments.memory) {
    std::printf("%s", RenderMemoryPlan((*executable)->memory_plan()).c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard::engine

int main(int argc, char** argv) {
  trainyard::engine::Arguments arguments;
  if (!trainyard::engine::Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_step [--net NAME] [--batch N] [--threads N] "
                 "[--steps N] [--runs N] [--warmup N] [--precision f32|bf16] [--bitwise] "
                 "[--profile] [--memory] [--products]\n");
    return 2;
  }
  const absl::Status status = trainyard::engine::Run(arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "bench_step: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
