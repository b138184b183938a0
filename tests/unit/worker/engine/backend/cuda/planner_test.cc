// Tests which plans are chosen, measured, estimated, taken over and kept, over the emulated cuDNN.
#include "worker/engine/backend/cuda/dnn/planner.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/engine/backend/cuda/dnn_testing.h"
#include "worker/engine/backend/cuda/dnn/candidates.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Runs the plan of a problem without bias on memory of its own.
void ExpectRuns(const Plan& plan, const ConvProblem& problem) {
  const ConvSizes sizes = SizesOf(problem);
  const Memory x(Values(sizes.x, 1));
  const Memory weight(Values(sizes.weight, 2));
  const Memory y(sizes.y * sizeof(float));
  const Memory workspace(static_cast<size_t>(plan.facts().workspace_bytes) + 256);
  const ConvMemory memory = {.x = x.get(), .weight = weight.get(), .y = y.get()};
  EXPECT_TRUE(plan.Run(memory, workspace.get(), nullptr).ok());
}

TEST(Planner, LeavesOutWhatCannotBeBuiltOrTakesTooMuchRoom) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const absl::StatusOr<const Plan*> plan = planner->Find(SmallConv(), Effort::kMeasure);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // One of the emulation's five engines needs 300 MiB, and no plan can be made of another.
  EXPECT_EQ((*plan)->facts().candidates, 3);
  EXPECT_LE((*plan)->facts().workspace_bytes, int64_t{1} << 20);
  EXPECT_GT((*plan)->facts().microseconds, 0);
}

TEST(Planner, LeavesOutWhatIsNotDeterministic) {
  PlannerOptions options;
  options.autotunes = false;
  const auto engine_of = [](const std::unique_ptr<Planner>& planner) {
    return (*planner->Find(SmallConv(), Effort::kMeasure))->facts().engine;
  };
  EXPECT_TRUE(absl::StartsWith(engine_of(PlannerWith(options)), "engine 3 "));
  options.deterministic = true;
  EXPECT_TRUE(absl::StartsWith(engine_of(PlannerWith(options)), "engine 1 "));
}

TEST(Planner, TakesNoMoreThanItsWorkspace) {
  PlannerOptions options;
  options.deterministic = true;
  options.workspace_bytes_max = 1 << 10;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  EXPECT_TRUE(absl::StartsWith((*planner->Find(SmallConv(), Effort::kMeasure))->facts().engine,
                               "engine 0 "));
}

TEST(Planner, MeasuresAtMostSoManyCandidates) {
  PlannerOptions options;
  options.candidates_max = 2;
  EXPECT_EQ((*PlannerWith(options)->Find(SmallConv(), Effort::kMeasure))->facts().candidates, 2);
}

TEST(Planner, SaysThatThereIsNoPlan) {
  cuda_on_cpu::RefuseConvolutions([](const cuda_on_cpu::ConvolutionShape&) { return true; });
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const absl::Status status = planner->Find(SmallConv(), Effort::kMeasure).status();
  cuda_on_cpu::RefuseConvolutions({});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), SmallConv().Key())) << status;
}

TEST(Planner, TakesAnotherEngineIfOneDoesNotRun) {
  cuda_on_cpu::FailRuns([](int64_t engine) { return engine != 1; });
  const absl::StatusOr<const Plan*> plan = PlannerWith({})->Find(SmallConv(), Effort::kMeasure);
  cuda_on_cpu::FailRuns({});
  ASSERT_TRUE(plan.ok()) << plan.status();
}

TEST(Planner, RefusesACandidateThatComputesSomethingElse) {
  ConvProblem problem = SmallConv();
  for (const ConvProblem::Kind kind :
       {ConvProblem::Kind::kForward, ConvProblem::Kind::kInputGradient,
        ConvProblem::Kind::kWeightGradient}) {
    problem.kind = kind;
    for (const int64_t wrong : {0, 1, 3}) {
      cuda_on_cpu::SpoilRuns([wrong](int64_t engine) { return engine == wrong; });
      Scrutinised scrutinised;
      const absl::StatusOr<const Plan*> plan = scrutinised.planner->Find(problem, Effort::kMeasure);
      cuda_on_cpu::SpoilRuns({});
      ASSERT_TRUE(plan.ok()) << plan.status();
      const std::string name = absl::StrCat("engine ", wrong, " ");
      EXPECT_FALSE(absl::StartsWith((*plan)->facts().engine, name));
      ASSERT_EQ(scrutinised.records.size(), 1U);
      const PlanRecord& record = scrutinised.records.front();
      EXPECT_EQ(record.problem, problem.Key());
      EXPECT_EQ(record.engine, (*plan)->facts().engine);
      EXPECT_TRUE(record.is_verified);
      ASSERT_EQ(record.refused.size(), 1U);
      EXPECT_TRUE(absl::StartsWith(record.refused.front(), name)) << record.refused.front();
    }
  }
}

TEST(Planner, CandidatesThatOnlyRoundDifferentlyAgree) {
  // Engine 3 gives other last bits each time.
  for (const bool is_gradient : {false, true}) {
    Scrutinised scrutinised;
    const AttentionProblem attention = {.is_gradient = is_gradient,
                                        .type = Type::kBf16,
                                        .rows = 2,
                                        .positions = 128,
                                        .heads = 2,
                                        .width = 8};
    ASSERT_TRUE(scrutinised.planner->Find(attention, Effort::kMeasure).ok());
    ConvProblem fused = SmallConv();
    fused.statistics = true;
    ASSERT_TRUE(scrutinised.planner->Find(fused, Effort::kMeasure).ok());
    ASSERT_EQ(scrutinised.records.size(), 2U);
    for (const PlanRecord& record : scrutinised.records) {
      EXPECT_TRUE(record.is_verified);
      EXPECT_TRUE(record.refused.empty()) << record.problem << ": " << record.refused.front();
      EXPECT_GT(record.difference, 0) << record.problem;
    }
  }
}

TEST(Planner, ComparesNothingUnlessItIsAskedTo) {
  cuda_on_cpu::SpoilRuns([](int64_t engine) { return engine == 1; });
  PlannerOptions options;
  std::vector<PlanRecord> records;
  options.scrutiny.records = &records;
  const absl::StatusOr<const Plan*> plan =
      PlannerWith(options)->Find(SmallConv(), Effort::kMeasure);
  cuda_on_cpu::SpoilRuns({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_FALSE(records.front().is_verified);
  EXPECT_TRUE(records.front().refused.empty());
}

TEST(Planner, ComparesAgainWhatAnEarlierRunChose) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  ASSERT_TRUE(PlannerWith(options)->Find(SmallConv(), Effort::kMeasure).ok());
  Scrutinised scrutinised(options);
  ASSERT_TRUE(scrutinised.planner->Find(SmallConv(), Effort::kMeasure).ok());
  ASSERT_EQ(scrutinised.records.size(), 1U);
  EXPECT_TRUE(scrutinised.records.front().is_verified);
  EXPECT_FALSE(scrutinised.records.front().from_cache);
}

TEST(Planner, ChoosesAmongTheSameWhateverTheThreads) {
  const auto facts = [](int threads) {
    PlannerOptions options;
    options.autotunes = false;
    options.build_threads = threads;
    return (*PlannerWith(options)->Find(SmallConv(), Effort::kMeasure))->facts();
  };
  for (const int threads : {2, 3, 8}) {
    EXPECT_EQ(facts(threads).engine, facts(1).engine) << threads;
  }
  PlannerOptions options;
  options.build_threads = 8;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  for (const int64_t rows : {1, 2, 3, 4}) {
    const ConvProblem problem = SmallConvOf(rows);
    const absl::StatusOr<const Plan*> plan = planner->Find(problem, Effort::kMeasure);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->facts().candidates, 3);
    ExpectRuns(**plan, problem);
  }
}

// A handle takes memory of the device, which a training needs for itself.
TEST(Planner, OnceItHasChosenOnlyOneHandleIsLeft) {
  const int64_t before = cuda_on_cpu::LiveCudnnHandles();
  PlannerOptions options;
  options.build_threads = 4;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  for (const int64_t rows : {1, 2, 3, 4}) {
    ASSERT_TRUE(planner->Find(SmallConvOf(rows), Effort::kMeasure).ok());
  }
  EXPECT_EQ(cuda_on_cpu::LiveCudnnHandles(), before + 4) << "the threads open them only once";
  planner->EndChoosing();
  EXPECT_EQ(cuda_on_cpu::LiveCudnnHandles(), before + 1);
  for (const int64_t rows : {1, 2, 3, 4, 5}) {
    const ConvProblem problem = SmallConvOf(rows);
    const absl::StatusOr<const Plan*> plan = planner->Find(problem, Effort::kMeasure);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->facts().candidates, 3);
    ExpectRuns(**plan, problem);
  }
}

TEST(Planner, TakesOverWhatAnotherRankMeasured) {
  const std::unique_ptr<Planner> leader = PlannerWith({});
  const PlanFacts measured = (*leader->Find(SmallConvOf(8), Effort::kMeasure))->facts();
  const PlanFacts tail = (*leader->Find(SmallConvOf(3), Effort::kInherit))->facts();
  const std::vector<std::string> choices = leader->MeasuredChoices();
  EXPECT_EQ(choices.size(), 1U) << "only measured choices are given on";
  const std::unique_ptr<Planner> follower = PlannerWith({});
  for (const std::string& choice : choices) follower->TakeChoice(choice);
  follower->TakeChoice("no choice");
  const int64_t runs = cuda_on_cpu::PlansRun();
  EXPECT_EQ((*follower->Find(SmallConvOf(8), Effort::kMeasure))->facts().engine, measured.engine);
  EXPECT_EQ((*follower->Find(SmallConvOf(3), Effort::kInherit))->facts().engine, tail.engine);
  EXPECT_EQ(cuda_on_cpu::PlansRun(), runs) << "something was measured";
  EXPECT_EQ(follower->MeasuredChoices(), choices);
}

// A run that resumes on this host must find what it has chosen.
TEST(Planner, AChoiceOfAnotherRankDoesNotReplaceAKeptOne) {
  const trainyard::testing::TempDir here;
  const trainyard::testing::TempDir there;
  PlannerOptions options;
  const auto choose = [&](const std::string& folder, int64_t engine) {
    options.cache_folder = folder;
    cuda_on_cpu::FailRuns([engine](int64_t other) { return other != engine; });
    const std::unique_ptr<Planner> planner = PlannerWith(options);
    EXPECT_TRUE(planner->Find(SmallConv(), Effort::kMeasure).ok());
    cuda_on_cpu::FailRuns({});
    return planner->MeasuredChoices();
  };
  EXPECT_EQ(choose(here.path(), 1).size(), 1U);
  const std::vector<std::string> others = choose(there.path(), 0);
  const auto engine = [&](const std::vector<std::string>& taken) {
    options.cache_folder = here.path();
    const std::unique_ptr<Planner> planner = PlannerWith(options);
    for (const std::string& choice : taken) planner->TakeChoice(choice);
    return (*planner->Find(SmallConv(), Effort::kMeasure))->facts().engine.substr(0, 8);
  };
  EXPECT_EQ(engine(others), "engine 0");
  EXPECT_EQ(engine({}), "engine 1") << "the file was replaced";
}

TEST(Planner, EstimatesWithoutBuilding) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const int64_t before = cuda_on_cpu::LiveCudnnObjects();
  const absl::StatusOr<const Plan*> estimate = planner->Find(SmallConv(), Effort::kEstimate);
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(cuda_on_cpu::LiveCudnnObjects(), before) << "something was built and kept";
  // Engine 4 cannot be built, which is not known yet, and engine 2 takes too much.
  EXPECT_TRUE(absl::StartsWith((*estimate)->facts().engine, "engine 4 "));
  EXPECT_EQ((*estimate)->Run(ConvMemory(), nullptr, nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
  // A measurement is more certain than an estimate.
  const PlanFacts measured = (*planner->Find(SmallConv(), Effort::kMeasure))->facts();
  EXPECT_EQ((*planner->Find(SmallConv(), Effort::kEstimate))->facts().engine, measured.engine);
}

TEST(Planner, EstimatesWhatAnEarlierRunMeasured) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  const PlanFacts measured = (*PlannerWith(options)->Find(SmallConv(), Effort::kMeasure))->facts();
  const PlanFacts estimated =
      (*PlannerWith(options)->Find(SmallConv(), Effort::kEstimate))->facts();
  EXPECT_EQ(estimated.engine, measured.engine);
  EXPECT_EQ(estimated.workspace_bytes, measured.workspace_bytes);
  EXPECT_EQ(estimated.microseconds, measured.microseconds);
  options.autotunes = false;  // then the run would not use it
  EXPECT_TRUE(absl::StartsWith(
      (*PlannerWith(options)->Find(SmallConv(), Effort::kEstimate))->facts().engine, "engine 4 "));
}

TEST(Planner, IsRefusedIfNoEngineRuns) {
  cuda_on_cpu::FailRuns([](int64_t) { return true; });
  const absl::Status status = PlannerWith({})->Find(SmallConv(), Effort::kMeasure).status();
  cuda_on_cpu::FailRuns({});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "a test made this run fail")) << status;
}

// After an illegal access every call fails, which must not look like a refusal of cuDNN's.
TEST(Planner, AnErrorThatEndsAllWorkOnTheDeviceIsNoRefusal) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  cuda_on_cpu::FailRuns([](int64_t) {
    cuda_on_cpu::BreakDevices(cudaErrorIllegalAddress);
    return true;
  });
  const absl::Status status = planner->Find(SmallConv(), Effort::kMeasure).status();
  cuda_on_cpu::FailRuns({});
  cuda_on_cpu::BreakDevices(cudaSuccess);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "illegal memory access")) << status;
}

TEST(Planner, RunsWhatItsFileKept) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  ConvProblem p = SmallConv();
  {
    const std::unique_ptr<Planner> planner = PlannerWith(options);
    ASSERT_TRUE(planner->Find(p, Effort::kMeasure).ok());
  }
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  const absl::StatusOr<const Plan*> plan = planner->Find(p, Effort::kMeasure);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->facts().from_cache);
  EXPECT_GT((*plan)->facts().microseconds, 0);
  ExpectRuns(**plan, p);
}

TEST(Planner, WithOtherRowsTheMeasuredChoiceIsTakenOver) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const PlanFacts large = (*planner->Find(SmallConvOf(8), Effort::kMeasure))->facts();
  const int64_t runs = cuda_on_cpu::PlansRun();
  for (const int64_t rows : {1, 3, 7}) {
    const absl::StatusOr<const Plan*> plan = planner->Find(SmallConvOf(rows), Effort::kInherit);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->facts().engine, large.engine);
    EXPECT_EQ((*plan)->facts().candidates, 1);
    EXPECT_DOUBLE_EQ((*plan)->facts().microseconds,
                     large.microseconds * static_cast<double>(rows) / 8);
  }
  EXPECT_EQ(cuda_on_cpu::PlansRun(), runs) << "something was measured";
  // A problem that was measured itself keeps what was chosen for it.
  EXPECT_EQ((*planner->Find(SmallConvOf(8), Effort::kInherit))->facts().candidates, 3);
}

TEST(Planner, TheLargestProblemOfAFamilyLeads) {
  PlannerOptions options;
  options.deterministic = true;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  const std::string large = (*planner->Find(SmallConvOf(8), Effort::kMeasure))->facts().engine;
  cuda_on_cpu::RefuseConvolutions([](const cuda_on_cpu::ConvolutionShape& shape) {
    return shape.rows == 5;  // a problem without a plan does not lead
  });
  EXPECT_FALSE(planner->Find(SmallConvOf(5), Effort::kMeasure).ok());
  cuda_on_cpu::RefuseConvolutions({});
  ASSERT_TRUE(planner->Find(SmallConvOf(2), Effort::kMeasure).ok());
  EXPECT_EQ((*planner->Find(SmallConvOf(3), Effort::kInherit))->facts().engine, large);
}

TEST(Planner, WithoutAnythingToTakeOverTheFirstProposalServes) {
  const std::unique_ptr<Planner> planner = PlannerWith({});
  const int64_t runs = cuda_on_cpu::PlansRun();
  const absl::StatusOr<const Plan*> plan = planner->Find(SmallConv(), Effort::kInherit);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(absl::StartsWith((*plan)->facts().engine, "engine 3 "));
  EXPECT_EQ((*plan)->facts().microseconds, 0);
  EXPECT_EQ(cuda_on_cpu::PlansRun(), runs) << "something was measured";
  // It does not stand in the way of a measurement, and stays valid.
  EXPECT_EQ((*planner->Find(SmallConv(), Effort::kMeasure))->facts().candidates, 3);
  EXPECT_EQ((*plan)->facts().candidates, 1);
}

// A run that resumes must compute the same, though others have kept choices in the meantime.
TEST(Planner, AnotherRunsMeasurementDoesNotReplaceTheLeaders) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  const auto tail = [&] {
    const std::unique_ptr<Planner> planner = PlannerWith(options);
    EXPECT_TRUE(planner->Find(SmallConvOf(8), Effort::kMeasure).ok());
    return (*planner->Find(SmallConvOf(3), Effort::kInherit))->facts().candidates;
  };
  EXPECT_EQ(tail(), 1);
  EXPECT_EQ((*PlannerWith(options)->Find(SmallConvOf(3), Effort::kMeasure))->facts().candidates, 3);
  EXPECT_EQ(tail(), 1) << "the tail took what the other run had measured";
}

TEST(Planner, WhatAnEarlierRunMeasuredServesWhereNothingLeads) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  ASSERT_TRUE(PlannerWith(options)->Find(SmallConv(), Effort::kMeasure).ok());
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  EXPECT_EQ((*planner->Find(SmallConv(), Effort::kInherit))->facts().candidates, 3);
  // It also leads once it is the answer to a measurement.
  const std::string engine = (*planner->Find(SmallConv(), Effort::kMeasure))->facts().engine;
  EXPECT_EQ((*planner->Find(SmallConvOf(1), Effort::kInherit))->facts().engine, engine);
}

TEST(Planner, WithoutMeasuringEachProblemHasItsFirstProposal) {
  PlannerOptions options;
  options.autotunes = false;
  const std::unique_ptr<Planner> planner = PlannerWith(options);
  EXPECT_TRUE(absl::StartsWith((*planner->Find(SmallConvOf(8), Effort::kMeasure))->facts().engine,
                               "engine 3 "));
  const PlanFacts tail = (*planner->Find(SmallConvOf(3), Effort::kInherit))->facts();
  EXPECT_TRUE(absl::StartsWith(tail.engine, "engine 3 "));
  EXPECT_EQ(tail.microseconds, 0);
}

TEST(Planner, KeepsWhatWasTakenOver) {
  const trainyard::testing::TempDir folder;
  PlannerOptions options;
  options.cache_folder = folder.File("plans");
  for (const bool from_cache : {false, true}) {
    const std::unique_ptr<Planner> planner = PlannerWith(options);
    const PlanFacts large = (*planner->Find(SmallConvOf(8), Effort::kMeasure))->facts();
    const PlanFacts small = (*planner->Find(SmallConvOf(3), Effort::kInherit))->facts();
    EXPECT_EQ(large.from_cache, from_cache);
    EXPECT_EQ(small.from_cache, from_cache);
    EXPECT_EQ(small.engine, large.engine);
  }
}

TEST(Planner, DescribesItsDevice) {
  const absl::StatusOr<std::string> json = PlannerWith({})->DeviceDescription();
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(Planner::ForDescription(*json, {}).ok());
}

TEST(Planner, LeavesNothingBehind) {
  const int64_t before = cuda_on_cpu::LiveCudnnObjects();
  const AttentionProblem attention = {.is_gradient = true,
                                      .type = Type::kBf16,
                                      .rows = 1,
                                      .positions = 128,
                                      .heads = 1,
                                      .width = 8};
  {
    const std::unique_ptr<Planner> planner = PlannerWith({});
    ASSERT_TRUE(planner->Find(SmallConv(), Effort::kMeasure).ok());
    ASSERT_TRUE(planner->Find(attention, Effort::kMeasure).ok());
    EXPECT_GT(cuda_on_cpu::LiveCudnnObjects(), before);
  }
  EXPECT_EQ(cuda_on_cpu::LiveCudnnObjects(), before);
}

TEST(IsAllowed, Tf32TakesTensorCoresButNoF16) {
  const auto allows = [](cudnnBackendNumericalNote_t note, Precision precision) {
    EngineConfig engine;
    engine.numerical_notes = {note};
    return IsAllowed(engine, precision, /*deterministic=*/false);
  };
  constexpr Precision kTf32 = {.is_f32 = true, .tf32 = true};
  constexpr Precision kF32 = {.is_f32 = true, .tf32 = false};
  EXPECT_TRUE(allows(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, kTf32));
  EXPECT_FALSE(allows(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, kF32));
  EXPECT_TRUE(allows(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, Precision()));
  for (const Precision precision : {kTf32, kF32, Precision()}) {
    EXPECT_FALSE(allows(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, precision));
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
