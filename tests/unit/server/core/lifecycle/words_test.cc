// Tests that every enum value becomes a word and the same value again.
#include "server/core/lifecycle/words.h"

#include <gtest/gtest.h>

#include <limits>

#include "server/core/lifecycle/records.h"

namespace trainyard::core {
namespace {

TEST(Words, EveryWordReadsBack) {
  for (const StopReason reason :
       {StopReason::kNone, StopReason::kCancel, StopReason::kSuspend, StopReason::kPreempt,
        StopReason::kDrain, StopReason::kTimeLimit, StopReason::kResize}) {
    StopReason back = StopReason::kNone;
    EXPECT_TRUE(FromText(Text(reason), back).ok());
    EXPECT_EQ(back, reason);
  }
  for (const PartState state :
       {PartState::kAssigned, PartState::kStarting, PartState::kRunning, PartState::kStopping,
        PartState::kExited, PartState::kDrained, PartState::kLost}) {
    PartState back = PartState::kAssigned;
    EXPECT_TRUE(FromText(Text(state), back).ok());
    EXPECT_EQ(back, state);
  }
}

TEST(Words, AnUnknownWordIsRefusedWithThoseThereAre) {
  Scheduling scheduling = Scheduling::kEligible;
  const absl::Status status = FromText("PAUSED", scheduling);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "'PAUSED' is none of ELIGIBLE, CORDONED, DRAINING");
}

TEST(Types, AnEventBelongsToItsJobOrWorker) {
  EXPECT_EQ(EventParent("jobs/12/attempts/1"), "jobs/12");
  EXPECT_EQ(EventParent("jobs/12"), "jobs/12");
  EXPECT_EQ(EventParent("workers/lab-1"), "workers/lab-1");
}

TEST(Types, MetricValuesThatAreNotNumbersEqualTheirCopy) {
  MetricValues a;
  a.values["test.loss"] = std::numeric_limits<double>::quiet_NaN();
  MetricValues b = a;
  EXPECT_EQ(a, b);
  b.values["test.loss"] = 1.0;
  EXPECT_FALSE(a == b);
}

}  // namespace
}  // namespace trainyard::core
