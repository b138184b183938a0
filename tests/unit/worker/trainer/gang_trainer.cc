// Runs every rank as a thread. Lines between ranks are made beforehand, by the names by which the
// trainer asks for them.
#include "tests/unit/worker/trainer/gang_trainer.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/trainer.h"

namespace trainyard::trainer {
namespace {

using CommunicatorsByName = std::map<std::string, std::unique_ptr<parallel::Communicator>>;

// A line between some ranks, which ask for it by its name.
struct Line {
  std::string name;
  std::vector<int> ranks;  // ascending
  std::shared_ptr<parallel::LocalGroup> group;
};

std::vector<Line> MakeLines(int world_size, int stages) {
  std::vector<Line> lines;
  const auto add = [&lines](const std::string& name, std::vector<int> ranks) {
    auto group = parallel::MakeLocalGroup(static_cast<int>(ranks.size()));
    lines.push_back({name, std::move(ranks), std::move(group)});
  };
  std::vector<int> all(static_cast<size_t>(world_size));
  std::iota(all.begin(), all.end(), 0);
  for (const char* name : {"gradients", "batch_norm"}) add(name, all);
  // These are the lines between neighbours of a pipeline.
  for (int before = 0; before + 1 < world_size; ++before) {
    for (const char* name : {"activations_", "gradients_"}) {
      add(absl::StrCat(name, before), {before, before + 1});
    }
  }
  // These are the lines between the ranks of one stage, by pipeline.
  for (int stage = 0; stage < stages && stages < world_size; ++stage) {
    std::vector<int> siblings;
    for (int rank = stage; rank < world_size; rank += stages) siblings.push_back(rank);
    for (const char* name : {"siblings", "gradients"}) {
      add(absl::StrCat("stage_", stage, "_", name), siblings);
    }
  }
  return lines;
}

// Returns the ends of the lines that `rank` has.
CommunicatorsByName LinesOf(const std::vector<Line>& lines, int rank) {
  CommunicatorsByName own;
  for (const Line& line : lines) {
    const auto found = std::find(line.ranks.begin(), line.ranks.end(), rank);
    if (found == line.ranks.end()) continue;
    own[line.name] =
        parallel::MakeLocalCommunicator(line.group, static_cast<int>(found - line.ranks.begin()));
  }
  return own;
}

}  // namespace

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
  const auto spec = ParseSpec(assignment_.spec_json);
  const std::vector<Line> lines =
      MakeLines(world_size, spec.ok() ? std::max(1, spec->stages().count()) : 1);
  std::vector<run_dir::RankResult> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Clock& clock = clocks_.contains(rank) ? *clocks_.at(rank) : *Clock::Real();
      RankOptions options{.run_dir = dir_.root(), .rank = rank, .connect = {}};
      // The line is also held here, so that a rank that fails before it connects is lost to the
      // others.
      auto host = parallel::MakeLocalCommunicator(group, rank);
      CommunicatorsByName own = LinesOf(lines, rank);
      options.connect = [&](const run_dir::Assignment&,
                            engine::MemoryKind arena) -> absl::StatusOr<Communicators> {
        Communicators communicators;
        communicators.host = std::move(host);
        communicators.connect_group = [&own](const parallel::Group& of)
            -> absl::StatusOr<std::unique_ptr<parallel::Communicator>> {
          return std::move(own.at(of.name));
        };
        if (arena == engine::MemoryKind::kHost || !make_exchange_) return communicators;
        communicators.make_device_exchange = [this, rank](DeviceExchangeRequest request) {
          return make_exchange_(rank, std::move(request));
        };
        communicators.make_device_link = [this, rank](DeviceLinkRequest request) {
          return make_link_(rank, std::move(request));
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
