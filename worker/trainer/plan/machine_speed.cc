// Times a small network with the backend itself, so that the prediction knows how good its kernels
// are, and copies that no cache can hold.
#include "worker/trainer/plan/machine_speed.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/cost.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"

namespace trainyard::trainer {
namespace {

// This is short enough for a command, and long enough that the best run is a quiet one.
constexpr absl::Duration kMeasureTime = absl::Milliseconds(125);
// Filtering does a quarter of the multiplications, and backends turn that into at least this gain
// over products. Without it, longer sums make 3x3 convolutions up to 1.7 times as fast.
constexpr double kFilteringGain = 2;
// All threads together copy more than any cache holds.
constexpr int64_t kCopyBytes = 128 << 20;
constexpr int kCopies = 3;

struct Layers {
  int64_t channels;
  int64_t kernel;
  int64_t side;
  int64_t rows;
};
constexpr Layers kProducts = {.channels = 64, .kernel = 1, .side = 16, .rows = 8};
constexpr Layers kNarrow = {.channels = kNarrowChannels, .kernel = 3, .side = 16, .rows = 8};
// The weights are read and transformed once for all rows, so fewer rows would be slower.
constexpr Layers kWide = {.channels = kWideChannels, .kernel = 3, .side = 8, .rows = 16};

// Three convolutions as in the middle of a residual network. The outer two keep the gradients of
// the middle one alive.
absl::StatusOr<engine::Graph> Convolutions(const Layers& layers) {
  engine::GraphBuilder b({layers.channels, layers.side, layers.side});
  engine::ValueId x = b.input();
  for (const char* name : {"conv1", "conv2", "conv3"}) {
    x = b.Conv2d(
        name, x,
        {.channels = layers.channels, .kernel = layers.kernel, .padding = layers.kernel / 2});
  }
  b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 2));
  return std::move(b).Build();
}

absl::StatusOr<double> MeasureFlops(absl::string_view backend_name, int threads,
                                    const Layers& layers) {
  TY_ASSIGN_OR_RETURN(const engine::Graph graph, Convolutions(layers));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(backend_name));
  TY_ASSIGN_OR_RETURN(
      const auto executable,
      backend->Compile(graph, {},
                       {.max_rows = layers.rows, .threads = threads, .deterministic = false}));
  const double flops =
      engine::GraphCost(engine::BuildTrainingStep(graph, {}).graph, layers.rows).flops;
  const std::vector<float> inputs(
      static_cast<size_t>(layers.rows * engine::ElementCount(graph.input_shape())), 0.5f);
  const std::vector<int32_t> labels(static_cast<size_t>(layers.rows), 0);
  Clock& clock = *Clock::Real();
  const absl::Duration start = clock.Uptime();
  absl::Duration best = absl::InfiniteDuration();
  do {
    const absl::Duration before = clock.Uptime();
    TY_RETURN_IF_ERROR(
        executable->Accumulate({.inputs = inputs, .labels = labels}, 1, /*on_ready=*/{}));
    TY_RETURN_IF_ERROR(executable->Synchronize());
    best = std::min(best, clock.Uptime() - before);
  } while (clock.Uptime() - start < kMeasureTime);
  return flops / std::max(1e-9, absl::ToDoubleSeconds(best));
}

double MeasureBandwidth(int threads) {
  const auto share = static_cast<size_t>(kCopyBytes / 2 / threads);
  std::vector<std::vector<char>> from(static_cast<size_t>(threads));
  std::vector<std::vector<char>> to(static_cast<size_t>(threads));
  Clock& clock = *Clock::Real();
  absl::Duration best = absl::InfiniteDuration();
  for (int copy = 0; copy <= kCopies; ++copy) {
    const absl::Duration before = clock.Uptime();
    std::vector<std::thread> workers;
    for (size_t t = 0; t < from.size(); ++t) {
      workers.emplace_back([&, t] {
        if (copy == 0) {  // this copy only brings the pages
          from[t].assign(share, 1);
          to[t].assign(share, 0);
        } else {
          std::memcpy(to[t].data(), from[t].data(), share);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    if (copy > 0) best = std::min(best, clock.Uptime() - before);
  }
  const double bytes = 2.0 * static_cast<double>(share) * threads;
  return bytes / std::max(1e-9, absl::ToDoubleSeconds(best));
}

}  // namespace

absl::StatusOr<MachineSpeed> MeasureMachine(absl::string_view backend, int threads) {
  MachineSpeed speed;
  TY_ASSIGN_OR_RETURN(speed.flops_per_second, MeasureFlops(backend, threads, kProducts));
  TY_ASSIGN_OR_RETURN(speed.filtered_flops_per_second, MeasureFlops(backend, threads, kNarrow));
  if (speed.filtered_flops_per_second > kFilteringGain * speed.flops_per_second) {
    TY_ASSIGN_OR_RETURN(speed.wide_filtered_flops_per_second,
                        MeasureFlops(backend, threads, kWide));
  }
  speed.bytes_per_second = MeasureBandwidth(threads);
  return speed;
}

}  // namespace trainyard::trainer
