// Runs every rank as a thread. Lines between ranks are made beforehand, by the names by which the
// trainer asks for them.
#include "tests/unit/worker/trainer/gang_trainer.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/trainer.h"

namespace trainyard::trainer {

std::string JobText::Spec() const {
  return absl::StrCat(R"({"name": "test", "model": )", model, R"(, "data": )", data,
                      R"(, "train": )", train, R"(, "optimizer": )", optimizer, more, "}");
}

GangTrainer::GangTrainer(const JobText& job, int world_size, const std::string& backend)
    : dir_(folder_.path()), signals_(static_cast<size_t>(world_size)) {
  assignment_.world_size = world_size;
  assignment_.backend = backend;
  assignment_.spec_json = job.Spec();
  for (int rank = 0; rank < world_size; ++rank) {
    assignment_.ranks.push_back({.rank = rank, .local_rank = rank});
  }
}

std::vector<run_dir::RankResult> GangTrainer::Run() {
  TY_CHECK_OK(run_dir::WriteAssignment(dir_, assignment_));
  const int world_size = assignment_.world_size;
  const auto group = parallel::MakeLocalGroup(world_size);
  std::map<std::string, std::shared_ptr<parallel::LocalGroup>> further;
  for (const char* name : {"gradients", "batch_norm"}) {
    further[name] = parallel::MakeLocalGroup(world_size);
  }
  // The line is between neighbours of a pipeline. The second argument is the one before.
  std::map<std::string, std::pair<std::shared_ptr<parallel::LocalGroup>, int>> between;
  for (int before = 0; before + 1 < world_size; ++before) {
    for (const char* name : {"activations_", "gradients_"}) {
      between[absl::StrCat(name, before)] = {parallel::MakeLocalGroup(2), before};
    }
  }
  // The line connects the ranks of one stage in all pipelines.
  const auto spec = ParseSpec(assignment_.spec_json);
  const int stages = spec.ok() ? std::max(1, spec->stages().count()) : 1;
  std::map<std::string, std::pair<std::shared_ptr<parallel::LocalGroup>, int>> of_stage;
  for (int stage = 0; stage < stages && stages < world_size; ++stage) {
    for (const char* name : {"siblings", "gradients"}) {
      of_stage[absl::StrCat("stage_", stage, "_", name)] = {
          parallel::MakeLocalGroup(world_size / stages), stage};
    }
  }
  std::vector<run_dir::RankResult> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Clock& clock = clocks_.contains(rank) ? *clocks_.at(rank) : *Clock::Real();
      RankOptions options{.run_dir = dir_.root(), .rank = rank, .connect = {}};
      // The line is also held here, so that a rank that fails before it connects is lost to the
      // others.
      auto host = parallel::MakeLocalCommunicator(group, rank);
      std::map<std::string, std::unique_ptr<parallel::Communicator>> lines;
      for (const auto& [name, line] : further) {
        lines[name] = parallel::MakeLocalCommunicator(line, rank);
      }
      for (const auto& [name, line] : between) {
        if (rank != line.second && rank != line.second + 1) continue;
        lines[name] = parallel::MakeLocalCommunicator(line.first, rank - line.second);
      }
      for (const auto& [name, line] : of_stage) {
        if (rank % stages != line.second) continue;
        lines[name] = parallel::MakeLocalCommunicator(line.first, rank / stages);
      }
      options.connect = [&](const run_dir::Assignment&,
                            engine::MemoryKind arena) -> absl::StatusOr<Communicators> {
        Communicators communicators;
        communicators.host = std::move(host);
        communicators.connect_group = [&lines](const parallel::Group& of)
            -> absl::StatusOr<std::unique_ptr<parallel::Communicator>> {
          return std::move(lines.at(of.name));
        };
        if (arena == engine::MemoryKind::kHost || !make_exchange_) return communicators;
        communicators.make_device_exchange = [this, rank](DeviceExchangeRequest request) {
          return make_exchange_(rank, std::move(request));
        };
        return communicators;
      };
      options.choose_device = choose_device_;
      results[static_cast<size_t>(rank)] = RunRank(options, signals(rank), clock);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::map<int64_t, double> GangTrainer::Metric(const std::string& name) const {
  const std::string text = ReadFile(dir_.MetricsPath(0)).value();
  std::map<int64_t, double> values;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto point = run_dir::DecodeMetricLine(line, dir_.MetricsPath(0));
    TY_CHECK_OK(point.status());
    if (point->name == name) values[point->step] = point->value;
  }
  return values;
}

std::string GangTrainer::CheckpointBytes(int64_t step, const std::string& file) const {
  const std::string folder = checkpoint::CheckpointPath(dir_.CheckpointsDir(), step);
  const auto manifest = checkpoint::VerifyCheckpoint(folder);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  return ReadFile(JoinPath(folder, file)).value_or("");
}

checkpoint::TensorFile GangTrainer::Model(int64_t step) const {
  auto tensors = checkpoint::DecodeSafetensors(CheckpointBytes(step, "model.safetensors"));
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  return tensors.ok() ? *std::move(tensors) : checkpoint::TensorFile();
}

}  // namespace trainyard::trainer
