// Tests that a step that does not fit is refused before the training begins, and that with the
// advised change the training gives the same result.
#include "worker/trainer/plan/memory.h"
#include "worker/trainer/plan/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/unit/worker/trainer/gang_trainer.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiB = 1 << 20;
constexpr char kConvnet[] = R"({"convnet": {"channels": [16, 24]}})";
constexpr char kResnet[] =
    R"({"resnet": {"depth": 20, "stem": "STEM_CIFAR", "input": [1, 28, 28], "classes": 10}})";

v1::JobSpec Spec(const JobText& job) {
  auto spec = ParseSpec(job.Spec());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

JobText Job(const std::string& model, int64_t batch, const std::string& more = "") {
  JobText job;
  job.model = model;
  job.train =
      absl::StrCat(R"({"steps": 4, "replicas": 1, "seed": 5, "global_batch": )", batch, "}");
  job.more = more;
  return job;
}

int64_t Needs(const JobText& job, const CompileTarget& target) {
  const auto plan = PlanRank(Spec(job), target);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->memory.total() : 0;
}

absl::Status Check(const JobText& job, const CompileTarget& target, int64_t limit) {
  return CheckMemory(Spec(job), target, PlanRank(Spec(job), target)->memory, limit);
}

// Returns the number after `what` in the message.
int64_t NumberAfter(const absl::Status& status, const std::string& what) {
  const std::string message(status.message());
  const size_t at = message.find(what);
  return at == std::string::npos ? -1 : std::atoll(message.c_str() + at + what.size());
}

class CheckMemoryOn : public ::testing::TestWithParam<const char*> {};

TEST_P(CheckMemoryOn, AcceptsWhatFitsToTheByte) {
  const JobText job = Job(kConvnet, 64);
  const CompileTarget target = {.backend = GetParam()};
  const int64_t needs = Needs(job, target);
  EXPECT_TRUE(Check(job, target, needs).ok());
  const absl::Status status = Check(job, target, needs - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorReason(status), kMemoryTooSmall);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("parameters "), HasSubstr("activations "), HasSubstr("batches ")));
}

TEST_P(CheckMemoryOn, NamesTheLargestBatchThatFits) {
  const CompileTarget target = {.backend = GetParam()};
  const int64_t limit = Needs(Job(kConvnet, 100), target);
  const absl::Status status = Check(Job(kConvnet, 256), target, limit);
  const int64_t batch = NumberAfter(status, "a batch of ");
  // Sizes grow in steps: one more row may need no more memory.
  EXPECT_GE(batch, 99) << status;
  EXPECT_LE(Needs(Job(kConvnet, batch), target), limit);
  EXPECT_GT(Needs(Job(kConvnet, batch + 2), target), limit);
}

TEST_P(CheckMemoryOn, AdvisesAMicrobatchAndDevicesThatFit) {
  const CompileTarget target = {.backend = GetParam()};
  const int64_t limit = Needs(Job(kConvnet, 100), target);
  const absl::Status status = Check(Job(kConvnet, 256), target, limit);
  const int64_t rows = NumberAfter(status, "memory.microbatch: ");
  ASSERT_GT(rows, 0) << status;
  const std::string more = absl::StrCat(R"(, "memory": {"microbatch": )", rows, "}");
  EXPECT_LE(Needs(Job(kConvnet, 256, more), target), limit);
  const int64_t devices = NumberAfter(status, "devices.count: ");
  EXPECT_EQ(devices, 3) << status;
  JobText spread = Job(kConvnet, 256);
  spread.train = R"({"steps": 4, "replicas": 3, "global_batch": 256})";
  EXPECT_LE(Needs(spread, {.backend = GetParam(), .world_size = 3}), limit);
}

TEST_P(CheckMemoryOn, AdvisesRecomputationAndReplicasWhereRowsAreCoupled) {
  const CompileTarget target = {.backend = GetParam()};
  const int64_t limit = Needs(Job(kResnet, 24), target);
  const absl::Status status = Check(Job(kResnet, 48), target, limit);
  EXPECT_THAT(std::string(status.message()),
              AllOf(ContainsRegex("so would memory.recompute: true \\(needs [0-9.]+ [KMG]iB\\)"),
                    HasSubstr(", another computation"), Not(HasSubstr("microbatch")),
                    Not(HasSubstr("devices"))));
  const int64_t replicas = NumberAfter(status, "train.replicas: ");
  EXPECT_LE(replicas, 4);
  JobText parted = Job(kResnet, 48);
  parted.train = absl::StrCat(R"({"steps": 4, "global_batch": 48, "replicas": )", replicas, "}");
  EXPECT_LE(Needs(parted, target), limit);
}

INSTANTIATE_TEST_SUITE_P(Backends, CheckMemoryOn, ::testing::Values("reference", "cpu"));

TEST(CheckMemory, SaysWhereNoBatchFits) {
  const absl::Status status = Check(Job(kConvnet, 64), {.backend = "reference"}, 1000);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("has 1000 B; no batch would fit"), Not(HasSubstr("memory."))));
}

TEST(MemoryOfRank, IsThatOfTheDeviceOrAShareOfTheHost) {
  run_dir::Assignment assignment;
  assignment.ranks = {{.rank = 0, .memory_bytes = 5}, {.rank = 1}};
  EXPECT_EQ(MemoryOfRank(assignment, 0), 5);
  const int64_t half = MemoryOfRank(assignment, 1);
  assignment.ranks.pop_back();
  assignment.ranks[0].memory_bytes = 0;
  EXPECT_NEAR(static_cast<double>(MemoryOfRank(assignment, 0)), 2.0 * static_cast<double>(half), 1);
}

TEST(TrainMemory, AJobThatCannotFitIsRefusedForGood) {
  GangTrainer gang(Job(kConvnet, 50), 1);
  gang.assignment().ranks[0].memory_bytes = kMiB;
  const run_dir::RankResult result = gang.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_EQ(result.reason, kMemoryTooSmall);
  EXPECT_EQ(result.step, 0);
  EXPECT_THAT(result.message, AllOf(HasSubstr("the step needs "), HasSubstr("has 1.0 MiB")));
}

void ExpectNear(const std::map<int64_t, double>& left, const std::map<int64_t, double>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [step, value] : left) EXPECT_NEAR(value, right.at(step), 2e-5) << step;
}

void ExpectNear(const checkpoint::TensorFile& left, const checkpoint::TensorFile& right) {
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [name, tensor] : left.tensors) {
    const auto a = checkpoint::FloatValues(tensor).value();
    const auto b = checkpoint::FloatValues(right.tensors.at(name)).value();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(a[i]))) << name << "[" << i << "]";
    }
  }
}

TEST(TrainMemory, MicrobatchesGiveTheSameWeights) {
  for (const int64_t rows : {1, 5, 16, 40}) {
    JobText job;  // batches of 16, the last one of 2, over 3 replicas
    GangTrainer whole(job, 2, "cpu");
    whole.Run();
    job.more = absl::StrCat(R"(, "memory": {"microbatch": )", rows, "}");
    GangTrainer parts(job, 2, "cpu");
    EXPECT_EQ(parts.Run()[0].outcome, Outcome::kSucceeded);
    ExpectNear(parts.Metric("train.loss"), whole.Metric("train.loss"));
    ExpectNear(parts.Model(8), whole.Model(8));
  }
}

TEST(TrainMemory, BatchNormRefusesMicrobatchesAndNamesReplicas) {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  job.more = R"(, "memory": {"microbatch": 4})";
  GangTrainer gang(job, 1);
  const run_dir::RankResult result = gang.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_THAT(result.message,
              AllOf(HasSubstr("4 is less than the 6 rows"), HasSubstr("train.replicas to 4")));
  // Computing a replica's rows at once is no problem.
  job.more = R"(, "memory": {"microbatch": 6})";
  GangTrainer whole(job, 1);
  EXPECT_EQ(whole.Run()[0].outcome, Outcome::kSucceeded);
}

JobText Replicas(int replicas, const std::string& more = "") {
  JobText job;
  job.model = kResnet;
  job.train = absl::StrCat(R"({"steps": 6, "global_batch": 16, "seed": 5, "replicas": )", replicas,
                           more, "}");
  return job;
}

TEST(ReplicasAtOnce, AreThoseThatTheRankHostsWhereNothingKeepsThemApart) {
  const auto at_once = [](const JobText& job, int world_size) {
    return ReplicasAtOnce(Spec(job), {.world_size = world_size}, int64_t{1} << 40).value();
  };
  EXPECT_EQ(at_once(Replicas(4), 1), 4);
  EXPECT_EQ(at_once(Replicas(4), 2), 2);
  EXPECT_EQ(at_once(Replicas(4), 4), 1);
  EXPECT_EQ(at_once(Replicas(4, R"(, "reproducibility": "REPRODUCIBILITY_BITWISE")"), 1), 1);
  EXPECT_EQ(at_once(Replicas(4, R"(, "sync_batch_norm": true)"), 1), 1);
  JobText parted = Replicas(4);
  parted.more = R"(, "memory": {"microbatch": 8})";
  EXPECT_EQ(at_once(parted, 1), 1);
  JobText plain = Replicas(4);
  plain.model = kConvnet;  // whose rows are one batch anyway
  EXPECT_EQ(at_once(plain, 1), 1);
}

TEST(ReplicasAtOnce, AreFewerWhereMemoryIsShort) {
  const v1::JobSpec spec = Spec(Replicas(4));
  const auto needs = [&spec](int at_once) {
    return PlanRank(spec, {.replicas_at_once = at_once})->memory.total();
  };
  EXPECT_LT(needs(1), needs(2));
  EXPECT_LT(needs(2), needs(4));
  EXPECT_EQ(ReplicasAtOnce(spec, {}, needs(4)).value(), 4);
  EXPECT_EQ(ReplicasAtOnce(spec, {}, needs(4) - 1).value(), 2);
  EXPECT_EQ(ReplicasAtOnce(spec, {}, needs(2) - 1).value(), 1);
  EXPECT_EQ(ReplicasAtOnce(spec, {}, 1000).value(), 1);
}

// A rank that has room for one replica at a time computes them one by one. The fourth step has two
// rows: a replica of one each, and two replicas without.
TEST(TrainMemory, ReplicasAtOnceGiveTheLossOfReplicasByThemselves) {
  for (const char* backend : {"reference", "cpu"}) {
    JobText job = Replicas(4);
    // Small steps, or rounding grows with each.
    job.optimizer = R"({"sgd": {"lr": 0.001, "momentum": 0.9}})";
    if (absl::string_view(backend) == "reference") {
      job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
    }
    GangTrainer alone(job, 1, backend);
    alone.assignment().ranks[0].memory_bytes =
        PlanRank(Spec(job), {.backend = backend})->memory.total();
    ASSERT_EQ(alone.Run()[0].outcome, Outcome::kSucceeded);
    for (const int ranks : {1, 2}) {
      GangTrainer together(job, ranks, backend);
      for (const run_dir::RankResult& result : together.Run()) {
        ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
      }
      const auto expected = alone.Metric("train.loss"), losses = together.Metric("train.loss");
      ASSERT_EQ(losses.size(), 6U);
      for (const auto& [step, loss] : losses) {
        // Later steps differ by more wherever rounding has carried a value across a relu's kink.
        if (step > 3) break;
        EXPECT_NEAR(loss, expected.at(step), 1e-6 * (1 + loss))
            << backend << ", " << ranks << " ranks, step " << step;
      }
    }
  }
}

TEST(TrainMemory, RecomputationTrainsTheSameBits) {
  JobText job;
  job.model =
      R"({"resnet": {"depth": 20, "stem": "STEM_CIFAR", "input": [1, 28, 28], "classes": 10}})";
  job.train = R"({"steps": 3, "global_batch": 8, "seed": 5})";
  GangTrainer kept(job, 1, "cpu");
  ASSERT_EQ(kept.Run()[0].outcome, Outcome::kSucceeded);
  job.more = R"(, "memory": {"recompute": true})";
  GangTrainer again(job, 1, "cpu");
  ASSERT_EQ(again.Run()[0].outcome, Outcome::kSucceeded);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(again.CheckpointBytes(3, file), kept.CheckpointBytes(3, file)) << file;
  }
  const int64_t with = Needs(job, {});
  job.more = "";
  EXPECT_LT(with, Needs(job, {}));
}

}  // namespace
}  // namespace trainyard::trainer
