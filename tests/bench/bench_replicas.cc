// Measures the time that it saves to compute the replicas of a device as one batch (Batch::groups)
// instead of one after the other, on the cpu backend. Both take turns in one run.
//
//   bench_replicas [--net wrn-16-4] [--batch 64] [--replicas 8] [--threads 1] [--turns 9]
// Prints the median CPU time of a step either way, the median ratio of neighbouring turns, and the
// same for the batch as a whole, of one replica.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "tests/bench/bench_nets.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

struct Arguments {
  std::string net = "wrn-16-4";
  int batch = 64;
  int replicas = 8;
  int threads = 1;
  int turns = 9;
};

bool Parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    int* number = flag == "--batch"      ? &arguments.batch
                  : flag == "--replicas" ? &arguments.replicas
                  : flag == "--threads"  ? &arguments.threads
                  : flag == "--turns"    ? &arguments.turns
                                         : nullptr;
    if (flag == "--net") {
      arguments.net = argv[i + 1];
    } else if (number == nullptr || !absl::SimpleAtoi(argv[i + 1], number) || *number < 1) {
      return false;
    }
  }
  return argc % 2 == 1 && arguments.batch % arguments.replicas == 0;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const Arguments& arguments, const Graph& model, Executable& executable)
      : arguments_(arguments),
        executable_(executable),
        rows_(MakeUpBatch(model, arguments.batch)),
        row_elements_(rows_.inputs.size() / static_cast<size_t>(arguments.batch)),
        groups_(static_cast<size_t>(arguments.replicas), arguments.batch / arguments.replicas) {}

  absl::Status Whole() { return Step(rows_.batch()); }
  absl::Status Grouped() {
    Batch batch = rows_.batch();
    batch.groups = groups_;
    return Step(batch);
  }
  absl::Status Separate() {
    const auto rows = static_cast<size_t>(groups_[0]);
    for (size_t replica = 0; replica < groups_.size(); ++replica) {
      const Batch batch = {absl::MakeConstSpan(rows_.inputs)
                               .subspan(replica * rows * row_elements_, rows * row_elements_),
                           absl::MakeConstSpan(rows_.labels).subspan(replica * rows, rows)};
      absl::Status status = executable_.Accumulate(batch, 1.0 / arguments_.replicas, nullptr);
      if (!status.ok()) return status;
    }
    return executable_.Update(0.01).status();
  }

 private:
  absl::Status Step(const Batch& batch) {
    const absl::Status status = executable_.Accumulate(batch, 1, nullptr);
    return status.ok() ? executable_.Update(0.01).status() : status;
  }

  const Arguments& arguments_;
  Executable& executable_;
  const MadeUpBatch rows_;
  const size_t row_elements_;
  const std::vector<int64_t> groups_;
};

// Returns milliseconds of CPU time, of all threads, which other load on the machine affects least.
// After an error it runs nothing.
double Time(absl::Status& status, Bench& bench, absl::Status (Bench::*step)()) {
  const std::clock_t start = std::clock();
  if (status.ok()) status = (bench.*step)();
  return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

absl::Status Run(const Arguments& arguments) {
  const absl::StatusOr<Graph> model = BuildBenchNet(arguments.net);
  if (!model.ok()) return model.status();
  const absl::StatusOr<std::unique_ptr<Executable>> executable =
      (*MakeBackend("cpu"))
          ->Compile(*model, BenchOptimizer(*model),
                    {.max_rows = arguments.batch,
                     .max_groups = arguments.replicas,
                     .threads = arguments.threads});
  if (!executable.ok()) return executable.status();
  absl::Status status = InitializeParameters(1, **executable);
  Bench bench(arguments, *model, **executable);
  std::vector<double> whole;
  std::vector<double> grouped;
  std::vector<double> separate;
  std::vector<double> of_separate;
  std::vector<double> of_whole;
  for (int turn = -1; turn < arguments.turns && status.ok(); ++turn) {
    const double w = Time(status, bench, &Bench::Whole);
    const double g = Time(status, bench, &Bench::Grouped);
    const double s = Time(status, bench, &Bench::Separate);
    if (turn < 0) continue;  // warms up: code and memory are new to it
    whole.push_back(w);
    grouped.push_back(g);
    separate.push_back(s);
    of_separate.push_back(g / s);
    of_whole.push_back(g / w);
  }
  if (!status.ok()) return status;
  std::printf(
      "%s batch %d threads %d: one replica %.2f ms; %d replicas as one batch %.2f ms, one after "
      "the "
      "other %.2f ms; ratio %.3f, to one replica %.3f\n",
      arguments.net.c_str(), arguments.batch, arguments.threads, Median(whole), arguments.replicas,
      Median(grouped), Median(separate), Median(of_separate), Median(of_whole));
  return absl::OkStatus();
}

}  // namespace
}  // namespace trainyard::engine

int main(int argc, char** argv) {
  trainyard::engine::Arguments arguments;
  if (!trainyard::engine::Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_replicas [--net NAME] [--batch N] [--replicas N, a divisor] "
                 "[--threads N] [--turns N]\n");
    return 2;
  }
  const absl::Status status = trainyard::engine::Run(arguments);
  if (!status.ok()) {
    std::fprintf(stderr, "bench_replicas: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
