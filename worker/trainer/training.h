// Everything that one rank needs to take its first step: data, compiled model, peers, weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/prefetch.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/optim/schedule.h"
#include "worker/parallel/block_exchange.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/group.h"
#include "worker/parallel/hosting.h"
#include "worker/parallel/sum_tree.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/training_spec.h"
#include "worker/trainer/pipeline_setup.h"
#include "worker/trainer/step_plan.h"
#include "worker/trainer/training_state.h"

namespace trainyard::trainer {

// What the exchange of an arena on a device is made of.
struct DeviceExchangeRequest {
  engine::Executable& executable;
  // Connects the same ranks over host memory, and nothing else uses it.
  std::unique_ptr<parallel::Communicator> host;
  // Its spans lie on the device.
  parallel::WireExchangeOptions memory;
  // Sums are taken in the order of the plan, to the bit.
  bool keeps_order = false;
};
using MakeDeviceExchange =
    std::function<absl::StatusOr<std::unique_ptr<parallel::GradientExchange>>(
        DeviceExchangeRequest request)>;

// How the ranks of a gang talk.
struct Communicators {
  // Over the host's memory: votes, weights, sums of evaluations.
  std::unique_ptr<parallel::Communicator> host;
  // For a reduction arena on a device; null where there is none, or one rank alone. It may be
  // called while the assignment of the gang lives.
  MakeDeviceExchange make_device_exchange;
  // Further lines over the host's memory, for who talks at the same time as others: by name.
  parallel::ConnectGroup connect_group;
};

// What batch norm talks through, connected when all ranks are.
struct StatisticsLine {
  std::unique_ptr<parallel::Communicator> communicator;

  // Sums over the ranks, in their order: the same bits on each.
  absl::Status Sum(absl::Span<double> values);
};

struct Training {
  run_dir::RunDir run_dir{""};
  int rank = 0;
  run_dir::TrainingSpec spec;
  data::DatasetOptions dataset_options;
  std::unique_ptr<data::Dataset> train_data;
  data::Preparation preparation;
  std::unique_ptr<engine::Executable> executable;
  // Of a rank that holds a stage.
  std::optional<PipelinePlace> pipeline;
  Communicators communicators;
  // Sums gradients over the ranks that host; null of one rank, or one pipeline, alone.
  std::unique_ptr<parallel::GradientExchange> exchange;
  // Parameters are updated range by range, as their gradients land.
  bool updates_ranges = false;
  engine::Schedule schedule;
  int64_t planned_bytes = 0;  // what the process takes
  StepPlan plan{StepPlanOptions{.epochs = 1}};
  // Who computes which replicas, and why; changes with SetHosting (hosting_plan.h).
  parallel::Hosting hosting;
  std::string hosting_reason;
  // Its place in `hosting`: the stages of a pipeline host together.
  size_t host() const {
    return static_cast<size_t>(pipeline.has_value() ? pipeline->pipeline : rank);
  }
  // By rank: the most replicas that its memory allows.
  std::vector<int> replica_room;
  // The order in which a bitwise run sums its hosted replicas.
  std::optional<parallel::LocalSums> sums;
  // How the reduction arena becomes final, from its model: ends of ranges.
  std::vector<int64_t> ready_ends;
  // Of one Accumulate at most: rows, and replicas that batch norm keeps apart.
  int64_t max_rows = 1;
  int64_t max_groups = 1;
  // Rows of one Evaluate at most: of the spec and the rank alone, not of the memory there is.
  int64_t evaluation_rows = 1;
  // Batch norm takes its statistics over the rows of all ranks, on a line of its own: null where it
  // does not. Every rank computes its rows at once.
  std::shared_ptr<StatisticsLine> statistics;
  // Each hosted replica is computed by itself, or as a group of its batch.
  bool computes_replicas_alone = false;
  RunIdentity identity;
  std::string backend;
  std::string device;  // its name, for people
  int threads = 1;
  // Updates that the checkpoint had done from which this run goes on; 0 for a run that starts anew.
  int64_t first_step = 0;
};

// Reaches the other ranks; returns when all are connected. `arena`: where the reduction arena lies.
using Connect = std::function<absl::StatusOr<Communicators>(const run_dir::Assignment& assignment,
                                                            engine::MemoryKind arena)>;

// Loads the data while the model is compiled, connects, and gives all ranks rank 0's weights:
// initialised from the seed or from a file, or those of the newest valid checkpoint. Ranks that
// disagree on spec, model or data are an error. `shares_memory`: where all ranks are on this host,
// gradients may meet in memory that they map from each other.
absl::StatusOr<Training> PrepareTraining(const run_dir::RunDir& dir,
                                         const run_dir::Assignment& assignment, int rank,
                                         const Connect& connect, bool shares_memory);

}  // namespace trainyard::trainer
