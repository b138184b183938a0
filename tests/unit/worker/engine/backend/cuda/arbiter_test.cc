// Tests that our own kernels judge the engines of the emulated cuDNN, and find what the engines
// cannot find out by themselves.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/arbiter/own_kernels.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using Kind = ConvProblem::Kind;

ConvProblem With(ConvProblem problem, Type type, bool tf32 = false) {
  problem.type = type;
  problem.tf32 = tf32;
  return problem;
}

// Odd sizes, strides, dilation, groups, and tensors within wider ones.
std::vector<ConvProblem> Convolutions() {
  std::vector<ConvProblem> problems;
  for (const Kind kind : {Kind::kForward, Kind::kInputGradient, Kind::kWeightGradient}) {
    ConvProblem grouped = SmallConv();
    grouped.kind = kind;
    problems.push_back(With(grouped, Type::kF32));
    problems.push_back(With(grouped, Type::kF32, /*tf32=*/true));
    ConvProblem plain = {.kind = kind,
                         .rows = 3,
                         .channels = 8,
                         .height = 9,
                         .width = 7,
                         .out_channels = 8,
                         .out_height = 7,
                         .out_width = 5,
                         .kernel = 3,
                         .padding = 1,
                         .dilation = 2,
                         .x_stride = 8,
                         .y_stride = 16};
    problems.push_back(With(plain, Type::kF16));
    problems.push_back(With(plain, Type::kBf16));
  }
  ConvProblem fused = problems[3];
  fused.relu = true;
  problems.push_back(fused);
  fused.bias = true;
  problems.push_back(fused);
  ConvProblem statistics = problems[3];
  statistics.statistics = true;
  problems.push_back(statistics);
  problems.push_back(With(statistics, Type::kF32));
  ConvProblem exact = problems[11];
  exact.f32_gradient = true;
  exact.y_stride = exact.out_channels;
  problems.push_back(exact);
  return problems;
}

std::vector<AttentionProblem> Attentions() {
  std::vector<AttentionProblem> problems;
  for (const bool is_gradient : {false, true}) {
    for (const Type type : {Type::kF16, Type::kBf16}) {
      problems.push_back({is_gradient, type, 1, 128, 2, 8});
    }
  }
  return problems;
}

// Calls `check` with every problem that our own kernels judge.
template <typename Check>
void ForEachProblem(const Check& check) {
  for (const ConvProblem& problem : Convolutions()) {
    SCOPED_TRACE(problem.Key());
    check(problem);
  }
  for (const AttentionProblem& problem : Attentions()) {
    SCOPED_TRACE(problem.Key());
    check(problem);
  }
}

PlannerOptions JudgedByOwnKernels() {
  PlannerOptions options;
  options.arbiter = &OwnKernels();
  // The other engines compute the same bits, right or wrong.
  options.deterministic = true;
  return options;
}

// A planner's answer for a problem whose engines are wrong if `spoils` is true for them.
struct Verdict {
  PlanRecord record = {};
  std::vector<std::string> choices = {};
  std::string engine = {};  // of the plan
};

template <typename Problem>
Verdict Judge(const Problem& problem, const PlannerOptions& options,
              const std::function<bool(int64_t)>& spoils) {
  cuda_on_cpu::SpoilRuns(spoils);
  Scrutinised scrutinised(options);
  const absl::StatusOr<const Plan*> plan = scrutinised.planner->Find(problem, Effort::kMeasure);
  cuda_on_cpu::SpoilRuns({});
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(scrutinised.records.size(), 1U);
  if (!plan.ok() || scrutinised.records.empty()) return {};
  EXPECT_TRUE(scrutinised.records.front().is_verified);
  return {.record = scrutinised.records.front(),
          .choices = scrutinised.planner->MeasuredChoices(),
          .engine = (*plan)->facts().engine};
}

bool IsWrong(int64_t /*engine*/) {
  return true;
}

TEST(Arbiter, AgreesWithEnginesThatAreRight) {
  ForEachProblem([](const auto& problem) {
    const Verdict verdict = Judge(problem, JudgedByOwnKernels(), nullptr);
    EXPECT_EQ(verdict.record.compared_with, ComparedWith::kOwnKernel);
    EXPECT_TRUE(verdict.record.refused.empty()) << verdict.record.refused.front();
    EXPECT_FALSE(verdict.record.is_disputed);
    EXPECT_EQ(verdict.choices.size(), 1U);
  });
}

TEST(Arbiter, FindsThatAllAreWrongInTheSameWay) {
  ForEachProblem([](const auto& problem) {
    const Verdict verdict = Judge(problem, JudgedByOwnKernels(), IsWrong);
    EXPECT_EQ(verdict.record.compared_with, ComparedWith::kOwnKernel);
    EXPECT_TRUE(verdict.record.is_disputed);
    EXPECT_EQ(verdict.record.refused.size(), static_cast<size_t>(verdict.record.candidates));
    for (const std::string& reason : verdict.record.refused) {
      EXPECT_TRUE(absl::StrContains(reason, "differs from our own kernel by ")) << reason;
    }
    // Our own kernel does not take their place, and no choice is kept that may be wrong.
    EXPECT_TRUE(absl::StartsWith(verdict.engine, "engine ")) << verdict.engine;
    EXPECT_TRUE(verdict.choices.empty());
    // By themselves, they find nothing.
    PlannerOptions alone = JudgedByOwnKernels();
    alone.arbiter = nullptr;
    const PlanRecord unnoticed = Judge(problem, alone, IsWrong).record;
    EXPECT_EQ(unnoticed.compared_with,
              unnoticed.candidates > 1 ? ComparedWith::kCandidates : ComparedWith::kNothing);
    EXPECT_TRUE(unnoticed.refused.empty());
    EXPECT_EQ(unnoticed.candidates, verdict.record.candidates) << "the arbiter is no candidate";
  });
}

TEST(Arbiter, FindsThatTheOnlyOneIsWrong) {
  PlannerOptions options = JudgedByOwnKernels();
  options.candidates_max = 1;
  ForEachProblem([&](const auto& problem) {
    const Verdict verdict = Judge(problem, options, IsWrong);
    EXPECT_EQ(verdict.record.candidates, 1);
    EXPECT_EQ(verdict.record.refused.size(), 1U);
    EXPECT_TRUE(verdict.record.is_disputed);
  });
}

TEST(Arbiter, DecidesForTheFewThatAreRight) {
  PlannerOptions options;
  options.arbiter = &OwnKernels();
  const Verdict verdict = Judge(SmallConv(), options, [](int64_t engine) { return engine != 1; });
  EXPECT_EQ(verdict.record.candidates, 3);
  EXPECT_EQ(verdict.record.refused.size(), 2U);
  EXPECT_FALSE(verdict.record.is_disputed);
  EXPECT_TRUE(absl::StartsWith(verdict.engine, "engine 1 ")) << verdict.engine;
  EXPECT_EQ(verdict.choices.size(), 1U);
}

// An arbiter that cannot compute anything.
class BrokenArbiter : public Arbiter {
 public:
  int64_t WorkspaceBytes(const ConvProblem& /*problem*/) const override { return 0; }
  int64_t WorkspaceBytes(const AttentionProblem& /*problem*/) const override { return 0; }
  absl::Status Run(const ConvProblem& /*problem*/, const ConvMemory& /*memory*/,
                   void* /*workspace*/, cudaStream_t /*stream*/) const override {
    return absl::InternalError("it is broken");
  }
  absl::Status Run(const AttentionProblem& /*problem*/, const AttentionMemory& /*memory*/,
                   void* /*workspace*/, cudaStream_t /*stream*/) const override {
    return absl::InternalError("it is broken");
  }
};

TEST(Arbiter, ThatDoesNotRunLeavesTheJudgmentToTheCandidates) {
  const BrokenArbiter broken;
  PlannerOptions options;
  options.arbiter = &broken;
  const Verdict verdict = Judge(SmallConv(), options, [](int64_t engine) { return engine == 1; });
  EXPECT_EQ(verdict.record.compared_with, ComparedWith::kCandidates);
  ASSERT_EQ(verdict.record.refused.size(), 1U);
  EXPECT_TRUE(absl::StrContains(verdict.record.refused.front(), "engine 1 "));
}

TEST(Arbiter, IsNotAskedUnlessPlansAreVerified) {
  cuda_on_cpu::SpoilRuns(IsWrong);
  std::vector<PlanRecord> records;
  PlannerOptions options = JudgedByOwnKernels();
  options.scrutiny.records = &records;
  const auto plan = PlannerWith(options)->Find(SmallConv(), Effort::kMeasure);
  cuda_on_cpu::SpoilRuns({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_FALSE(records.front().is_verified);
  EXPECT_FALSE(records.front().is_disputed);
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
