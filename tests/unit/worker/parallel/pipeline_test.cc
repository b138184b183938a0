// Compares schedules of pipelines with what they must be, and their times with theory.
#include "worker/parallel/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

namespace trainyard::parallel {
namespace {

using Kind = StageAction::Kind;
using ::testing::ElementsAre;

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::kSequential, PipelineSchedule::kGpipe,
                                           PipelineSchedule::k1F1B};
constexpr int kStagesMax = 6;
constexpr int kMicrobatchesMax = 8;

// The actions as text: "F0 F1 B0 B1".
std::string Written(const std::vector<StageAction>& actions) {
  std::string text;
  for (const StageAction& action : actions) {
    text += text.empty() ? "" : " ";
    text += (action.kind == Kind::kForward ? "F" : "B") + std::to_string(action.microbatch);
  }
  return text;
}

template <class Check>
void ForEachShape(const Check& check) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (int stages = 1; stages <= kStagesMax; ++stages) {
      for (int microbatches = 1; microbatches <= kMicrobatchesMax; ++microbatches) {
        SCOPED_TRACE(::testing::Message() << "schedule " << static_cast<int>(schedule) << ", "
                                          << stages << " stages, " << microbatches);
        check(schedule, stages, microbatches);
      }
    }
  }
}

TEST(PipelineSchedules, AreThoseOfThePapers) {
  EXPECT_EQ(Written(ActionsOf(PipelineSchedule::kSequential, 2, 0, 2)), "F0 B0 F1 B1");
  EXPECT_EQ(Written(ActionsOf(PipelineSchedule::kGpipe, 2, 0, 3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(Written(ActionsOf(PipelineSchedule::k1F1B, 3, 0, 5)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(Written(ActionsOf(PipelineSchedule::k1F1B, 3, 1, 5)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(Written(ActionsOf(PipelineSchedule::k1F1B, 3, 2, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_TRUE(ActionsOf(PipelineSchedule::k1F1B, 3, 2, 0).empty());
}

TEST(PipelineSchedules, GoThroughEveryMicrobatchInOrderForwardThenBackward) {
  ForEachShape([](PipelineSchedule schedule, int stages, int microbatches) {
    for (int stage = 0; stage < stages; ++stage) {
      int forwards = 0;
      int backwards = 0;
      for (const StageAction& action : ActionsOf(schedule, stages, stage, microbatches)) {
        EXPECT_EQ(action.microbatch, action.kind == Kind::kForward ? forwards++ : backwards++);
        EXPECT_LE(backwards, forwards);
      }
      EXPECT_EQ(forwards, microbatches);
      EXPECT_EQ(backwards, microbatches);
    }
  });
}

TEST(PipelineSchedules, KeepNoMoreThanTheirSlotsAndNeverTwoInOne) {
  ForEachShape([](PipelineSchedule schedule, int stages, int microbatches) {
    for (int stage = 0; stage < stages; ++stage) {
      const int slots = PeakSlots(schedule, stages, stage, microbatches);
      std::set<int> used;
      size_t most = 0;
      for (const StageAction& action : ActionsOf(schedule, stages, stage, microbatches)) {
        if (action.kind == Kind::kForward) {
          EXPECT_TRUE(used.insert(action.microbatch % slots).second);
          most = std::max(most, used.size());
        } else {
          EXPECT_EQ(used.erase(action.microbatch % slots), 1u);
        }
      }
      EXPECT_EQ(static_cast<int>(most), slots);
    }
  });
  EXPECT_EQ(PeakSlots(PipelineSchedule::k1F1B, 4, 0, 100), 4);
  EXPECT_EQ(PeakSlots(PipelineSchedule::kGpipe, 4, 0, 100), 100);
}

// A step that stages could not finish would end the simulation.
TEST(PipelinePredictions, EveryScheduleComesToAnEnd) {
  ForEachShape([](PipelineSchedule schedule, int stages, int microbatches) {
    const std::vector<StageTimes> times(static_cast<size_t>(stages), {1, 2});
    const auto predicted = PredictPipeline(schedule, times, {}, microbatches);
    EXPECT_GE(predicted.step_seconds, 3.0 * microbatches);
  });
}

TEST(PipelinePredictions, TheBubbleOfEqualStagesIsThatOfTheory) {
  for (const PipelineSchedule schedule : {PipelineSchedule::kGpipe, PipelineSchedule::k1F1B}) {
    for (int s = 1; s <= kStagesMax; ++s) {
      for (int m = 1; m <= kMicrobatchesMax; ++m) {
        const std::vector<StageTimes> times(static_cast<size_t>(s), {1, 2});
        const auto predicted = PredictPipeline(schedule, times, {}, m);
        EXPECT_NEAR(predicted.bubble, (s - 1.0) / (m + s - 1), 1e-12) << s << " " << m;
        EXPECT_NEAR(predicted.step_seconds, 3.0 * (m + s - 1), 1e-12);
      }
    }
  }
}

TEST(PipelinePredictions, OneDeviceAtATimeWorksInASequentialPipeline) {
  const std::vector<StageTimes> times = {{1, 2}, {3, 4}, {2, 2}};
  const auto predicted = PredictPipeline(PipelineSchedule::kSequential, times, {}, 1);
  EXPECT_DOUBLE_EQ(predicted.step_seconds, 14);
  EXPECT_DOUBLE_EQ(predicted.bubble, 1 - 14.0 / (3 * 14));
  EXPECT_THAT(predicted.busy_seconds, ElementsAre(3, 7, 4));
}

TEST(PipelinePredictions, TheSlowestStageSetsThePace) {
  const std::vector<StageTimes> times = {{1, 1}, {2, 2}};
  // The second stage begins at 1 and works 4 for each microbatch without pause; then the first goes
  // back in 1.
  const auto predicted = PredictPipeline(PipelineSchedule::k1F1B, times, {}, 10);
  EXPECT_DOUBLE_EQ(predicted.step_seconds, 1 + 40 + 1);
}

TEST(PipelinePredictions, LinksDelayTheBeginningAndTheEnd) {
  const std::vector<StageTimes> times = {{2, 2}, {2, 2}};
  const std::vector<double> links = {0.5};
  const auto predicted = PredictPipeline(PipelineSchedule::kGpipe, times, links, 4);
  // The sends in between are hidden behind computation.
  EXPECT_DOUBLE_EQ(predicted.step_seconds, 2 + 0.5 + 16 + 0.5 + 2);
}

TEST(PipelinePredictions, ASlowLinkIsTheBottleneck) {
  const std::vector<StageTimes> times = {{1, 1}, {1, 1}};
  const std::vector<double> links = {10};
  const auto predicted = PredictPipeline(PipelineSchedule::kGpipe, times, links, 3);
  // The line carries one at a time: the last arrives after 1 + 30. The first gradient leaves at
  // 1 + 30 + 2, and the line back takes 30 again.
  EXPECT_DOUBLE_EQ(predicted.step_seconds, 31 + 1 + 1 + 30 + 1);
}

}  // namespace
}  // namespace trainyard::parallel
