// Tests what is done about pilots and clusters that are not as they should be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/errors.h"
#include "server/provision/core/breaker.h"
#include "server/provision/core/demand.h"
#include "server/provision/core/observe.h"
#include "server/provision/core/step.h"
#include "tests/unit/server/provision/step_fixture.h"

namespace trainyard::provision {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(StepTest, APilotWithOtherDevicesEndsAndOpensTheBreaker) {
  ProviderSpec spec = Spec("lab");
  spec.submit_interval_us = 0;
  spec.max_pilots = 1;
  Add(spec);
  Want("lab", 1);
  for (int i = 1; i <= kFailedStartsMax; ++i) {
    while (!Has(DecisionKind::kSubmit)) Turn();
    const std::string name = NamesOf(DecisionKind::kSubmit)[0];
    listed_ = {{name, std::to_string(i), ForeignState::kActive}};
    workers_ = {{name, 1, 0, false, "its worker has 2 x cpu, and the provider says 1 x h200"}};
    Turn();
    EXPECT_EQ(At("lab", i).state, PilotState::kEnding);
    EXPECT_THAT(At("lab", i).reason, HasSubstr("2 x cpu"));
    EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre(name));
    listed_.clear();
    workers_.clear();
    Turn();
    EXPECT_THAT(NamesOf(DecisionKind::kDropTokens), ElementsAre(name));
  }
  const Breaker& breaker = state_.providers.at("lab").breaker;
  EXPECT_EQ(breaker.state, Breaker::State::kOpen);
  EXPECT_THAT(breaker.reason, HasSubstr("the provider says 1 x h200"));
}

TEST_F(StepTest, APilotWithOtherDevicesMayFinishWhatItHasBegun) {
  Add(Spec("lab"));
  Want("lab", 1);
  ASSERT_NE(Connect("lab", "77"), "");
  workers_[0].mismatch = "its worker has 2 x cpu";
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kRunning);
}

TEST_F(StepTest, PilotsThatNeverHaveWorkAreAskedForEverMoreSeldom) {
  ProviderSpec spec = Spec("lab");
  spec.submit_interval_us = 0;
  spec.idle_us = kSecondUs;
  spec.max_pilots = 1;
  Add(spec);
  Want("lab", 1);
  // The demand is there all along, as it is if the job does not fit on what the pilots bring.
  int asked = 0;
  const auto live = [&](int32_t busy) {
    Turn(kMinuteUs / 2);
    for (const std::string& name : NamesOf(DecisionKind::kSubmit)) {
      ++asked;
      listed_ = {{name, std::to_string(asked), ForeignState::kActive}};
      workers_ = {{name, 1, busy}};
    }
    if (Has(DecisionKind::kDrain)) workers_[0].is_draining = true;
    if (!Has(DecisionKind::kCancel)) return;
    listed_.clear();
    workers_.clear();
  };
  const int64_t begin = now_;
  while (now_ - begin < kHourUs) live(0);
  const int first_hour = asked;
  EXPECT_GE(first_hour, 4);
  while (now_ - begin < 11 * kHourUs) live(0);
  EXPECT_GE(asked - first_hour, 9);
  EXPECT_LE(asked - first_hour, 12) << "one an hour, and a few on the way there";
  EXPECT_GE(state_.providers.at("lab").unused_pilots, kUnusedPilotsMax);
  while (now_ - begin < 13 * kHourUs) live(1);
  EXPECT_EQ(state_.providers.at("lab").unused_pilots, 0);
}

TEST_F(StepTest, ASilentWorkerWithJobsKeepsItsPilot) {
  const ProviderSpec spec = Spec("lab");
  ASSERT_NO_FATAL_FAILURE(AddWithIdlePilot(spec));
  Turn(spec.idle_us);
  ASSERT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre("ty-s1-lab-1"));
  // A job came before the order, and then its worker is silent for a while.
  workers_[0].busy = 1;
  workers_[0].is_draining = true;
  Turn();
  EXPECT_EQ(At("lab", 1).drain_us, 0);
  workers_[0].connected = 0;
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kRunning);
}

TEST_F(StepTest, WhatDoesNotChangePilotsKeepsTheirPlacesInTheQueue) {
  ProviderSpec spec = Spec("lab");
  Add(spec);
  Want("lab", 1);
  Turn();
  Reply("lab", "ty-s1-lab-1", "77");
  listed_ = {{"ty-s1-lab-1", "77", ForeignState::kWaiting}};
  Turn();
  spec.cost_per_hour = 2;
  spec.max_pilots = 9;
  Add(spec);
  Turn(spec.idle_us);
  Turn(spec.idle_us);
  EXPECT_THAT(decisions_, IsEmpty());
  EXPECT_EQ(At("lab", 1).state, PilotState::kQueued);
  ASSERT_TRUE(SetProvider(state_, spec, /*is_other_request=*/true).ok());
  Turn();
  Turn(spec.idle_us);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-1"));
}

TEST_F(StepTest, PilotsOfAProviderThatNobodyKnowsAreCancelled) {
  Add(Spec("lab"));
  listed_ = {{"ty-s1-other-part-9", "99", ForeignState::kActive},
             {"ty-s1-other-part-x", "98", ForeignState::kActive},
             {"ty-s2-other-9", "97", ForeignState::kActive},
             {"ty-s1-gone-3", "96", ForeignState::kCompleted}};
  Turn();
  ASSERT_EQ(decisions_.size(), 1u);
  EXPECT_EQ(decisions_[0].kind, DecisionKind::kCancel);
  EXPECT_EQ(decisions_[0].foreign_id, "99");
  // One that is another provider's is its own business.
  Add(Spec("other-part"));
  EXPECT_THAT(Turn(), Not(Contains(Field(&Decision::provider, "lab"))));
}

TEST_F(StepTest, AClockThatWasAheadHoldsNothingUp) {
  const ProviderSpec spec = Spec("lab");
  ASSERT_NO_FATAL_FAILURE(AddWithIdlePilot(spec));
  // The server starts again eight hours earlier by the clock.
  now_ -= 8 * kHourUs;
  WakeUp(state_, now_);
  Turn();
  EXPECT_EQ(state_.providers.at("lab").listing_failure, "");
  EXPECT_GT(state_.providers.at("lab").listing_us, now_ - kMinuteUs);
  Turn(spec.idle_us);
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre("ty-s1-lab-1"));
}

TEST_F(StepTest, AProviderWhoseClusterIsGoneCanBeForgotten) {
  Add(Spec("lab"));
  Want("lab", 1);
  const std::string name = Connect("lab", "77");
  ASSERT_TRUE(RemoveProvider(state_, "lab").ok());
  for (int i = 0; i < 100; ++i) Turn(kMinuteUs, "the cluster does not answer");
  EXPECT_TRUE(state_.providers.contains("lab"));
  EXPECT_EQ(ErrorReason(ForgetProvider(state_, "other")), "PROVIDER_NOT_FOUND");
  ASSERT_TRUE(ForgetProvider(state_, "lab").ok());
  Turn(kSecondUs, "the cluster does not answer");
  EXPECT_THAT(NamesOf(DecisionKind::kForget), ElementsAre(name)) << "its tokens go";
  EXPECT_TRUE(Has(DecisionKind::kForgetProvider));
  EXPECT_THAT(state_.providers, IsEmpty());
}

}  // namespace
}  // namespace trainyard::provision
