// Runs whole trainings inside a test: all ranks of a gang as threads, each over the local
// communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "tests/testing/temp_dir.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/parallel/communicator.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/records.h"
#include "worker/trainer/run/control.h"
#include "worker/trainer/run/gang.h"
#include "worker/trainer/trainer.h"

namespace trainyard::trainer {

// A small job on glyphs: 50 samples in batches of 16 (three full ones and one of 2) over 3
// replicas.
struct JobText {
  std::string model = R"({"convnet": {"channels": [4, 6]}})";
  std::string data = R"({"dataset": "glyphs", "train_size": 50, "test_size": 17})";
  std::string train = R"({"epochs": 2, "global_batch": 16, "replicas": 3, "seed": 5})";
  std::string optimizer = R"({"sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": true}})";
  std::string more = "";  // further members, each beginning with a comma

  std::string Spec() const;
};

// A run directory and the result of its training.
class GangTrainer {
 public:
  GangTrainer(const JobText& job, int world_size, const std::string& backend = "reference");

  const run_dir::RunDir& dir() const { return dir_; }
  run_dir::Assignment& assignment() { return assignment_; }
  Signals& signals(int rank) { return signals_[static_cast<size_t>(rank)]; }

  // Used for arenas on devices. Without it there may be only one rank. It is called on the rank's
  // thread.
  using MakeRankExchange =
      std::function<absl::StatusOr<std::unique_ptr<parallel::GradientExchange>>(
          int rank, DeviceExchangeRequest request)>;
  void set_make_exchange(MakeRankExchange make_exchange) {
    make_exchange_ = std::move(make_exchange);
  }
  // Used for links between stages on devices.
  using MakeRankLink = std::function<absl::StatusOr<std::unique_ptr<parallel::StageLink>>(
      int rank, DeviceLinkRequest request)>;
  void set_make_link(MakeRankLink make_link) { make_link_ = std::move(make_link); }
  void set_choose_device(decltype(RankOptions::choose_device) choose) {
    choose_device_ = std::move(choose);
  }

  // Gives one rank a clock, which is borrowed.
  void set_clock(int rank, Clock& clock) { clocks_[rank] = &clock; }

  // Trains to the end of all ranks and returns their results by rank. It may be called again, as
  // after a restart.
  std::vector<run_dir::RankResult> Run();

  // The values of rank 0's metric, by step.
  std::map<int64_t, double> Metric(const std::string& name) const;
  // The bytes, and the tensors, of a file of checkpoint `step`.
  std::string CheckpointBytes(int64_t step, const std::string& file) const;
  checkpoint::TensorFile Model(int64_t step) const;

 private:
  testing::TempDir folder_;
  run_dir::RunDir dir_;
  run_dir::Assignment assignment_;
  std::vector<Signals> signals_;
  MakeRankExchange make_exchange_;
  MakeRankLink make_link_;
  std::map<int, Clock*> clocks_;
  decltype(RankOptions::choose_device) choose_device_;
};

}  // namespace trainyard::trainer
