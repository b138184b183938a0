// Tests the decisions about pilots, one rule at a time. The simulation beside this file lets them
// all meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(StepTest, DemandAsksForOneProbeUntilItHasConnected) {
  Add(Spec("lab"));
  Want("lab", 3);
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-1"));
  Reply("lab", "ty-s1-lab-1", "77");
  listed_ = {{"ty-s1-lab-1", "77", ForeignState::kWaiting, "Resources"}};
  Turn(kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty());
  EXPECT_EQ(At("lab", 1).state, PilotState::kQueued);
  EXPECT_EQ(At("lab", 1).foreign_reason, "Resources");
  listed_[0].state = ForeignState::kActive;
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kStarting);
  workers_ = {{"ty-s1-lab-1", 1, 1}};
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kRunning);
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-2"));
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-3"));
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), IsEmpty()) << "two wait, as many as the backlog";
}

TEST_F(StepTest, NothingIsAskedForBeforeAListingOrAfterOneFailed) {
  Add(Spec("lab"));
  Want("lab", 1);
  now_ += kMinuteUs;
  EXPECT_THAT(Step(state_, {now_, {}, {}, demand_}), IsEmpty());
  Turn(kMinuteUs, "the controller is down");
  EXPECT_FALSE(Has(DecisionKind::kSubmit));
  EXPECT_EQ(state_.providers.at("lab").listing_failure, "the controller is down");
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kSubmit));
}

TEST_F(StepTest, ALostReplyIsFoundByItsName) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  next_.news["lab"].submitted.push_back(
      {"ty-s1-lab-1", SubmitResult::Kind::kUnknown, "", "timeout"});
  Turn(kMinuteUs);
  EXPECT_EQ(At("lab", 1).state, PilotState::kWanted);
  EXPECT_FALSE(Has(DecisionKind::kSubmit)) << "the first may still be on its way";
  listed_ = {{"ty-s1-lab-1", "5", ForeignState::kWaiting}};
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kQueued);
  EXPECT_EQ(At("lab", 1).foreign_id, "5");
  EXPECT_THAT(decisions_, IsEmpty());
}

TEST_F(StepTest, OnlyACompleteLateListingDeclaresASubmissionLost) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  Turn(kSubmissionSettlesUs + kMinuteUs, "slurmctld does not answer");
  EXPECT_EQ(At("lab", 1).state, PilotState::kWanted);
  // It was begun too early, although it arrives late.
  Inputs inputs;
  inputs.now_us = now_ + kSecondUs;
  inputs.news["lab"].listing = Listing{At("lab", 1).create_us + kSubmissionSettlesUs, "", {}};
  Step(state_, inputs);
  EXPECT_EQ(At("lab", 1).state, PilotState::kWanted);
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kEnded);
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-2"));
}

TEST_F(StepTest, AnUnknownPilotOfOursIsCancelledAndItsNumberNotUsed) {
  Add(Spec("lab"));
  listed_ = {
      {"ty-s1-lab-8", "9", ForeignState::kActive},  {"ty-s1-lab-7", "8", ForeignState::kCompleted},
      {"ty-s2-lab-6", "7", ForeignState::kActive},  {"ty-s2-lab-x-6", "7", ForeignState::kActive},
      {"ty-s1-lab-06", "7", ForeignState::kActive}, {"simulation", "6", ForeignState::kActive}};
  Turn();
  ASSERT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-8"));
  EXPECT_EQ(decisions_[0].foreign_id, "9");
  Want("lab", 1);
  Turn();
  EXPECT_FALSE(Has(DecisionKind::kSubmit)) << "a probe waits until the stranger is gone";
  listed_.clear();
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-9"));
}

TEST_F(StepTest, ASecondAllocationOfAPilotIsCancelled) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  Reply("lab", "ty-s1-lab-1", "12");
  listed_ = {{"ty-s1-lab-1", "11", ForeignState::kActive},
             {"ty-s1-lab-1", "12", ForeignState::kWaiting}};
  Turn();
  ASSERT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-1"));
  EXPECT_EQ(decisions_[0].foreign_id, "11");
  EXPECT_EQ(At("lab", 1).state, PilotState::kQueued);
}

TEST_F(StepTest, AnIdlePilotIsDrainedBeforeItIsCancelled) {
  Add(Spec("lab"));
  Want("lab", 1);
  const std::string pilot = Connect("lab", "1");
  demand_.clear();
  Turn(kHourUs);
  EXPECT_THAT(decisions_, IsEmpty()) << "it has work";
  workers_[0].busy = 0;
  Turn();
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(5 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre(pilot));
  EXPECT_FALSE(Has(DecisionKind::kCancel));
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre(pilot)) << "the order may be lost";
  workers_[0].is_draining = true;
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre(pilot));
  Turn(kSecondUs);
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(kCancelEveryUs);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre(pilot));
  listed_.clear();
  workers_.clear();
  Turn();
  EXPECT_EQ(At("lab", 1).state, PilotState::kEnded);
  EXPECT_EQ(At("lab", 1).reason, "it had no work");
  Turn(kKeepEndedUs);
  EXPECT_THAT(NamesOf(DecisionKind::kForget), ElementsAre(pilot));
  EXPECT_TRUE(state_.providers.at("lab").pilots.empty());
}

TEST_F(StepTest, APilotThatGetsWorkBeforeItIsDrainedStays) {
  Add(Spec("lab"));
  Want("lab", 1);
  const std::string pilot = Connect("lab", "1");
  demand_.clear();
  workers_[0].busy = 0;
  Turn();
  Turn(5 * kMinuteUs);
  EXPECT_TRUE(Has(DecisionKind::kDrain));
  workers_[0].busy = 1;
  Turn();
  EXPECT_THAT(decisions_, IsEmpty());
  EXPECT_EQ(At("lab", 1).drain_us, 0);
}

TEST_F(StepTest, TheMinimumStaysAndIsReplaced) {
  ProviderSpec spec = Spec("lab");
  spec.min_pilots = 1;
  Add(spec);
  const std::string pilot = Connect("lab", "1");
  EXPECT_EQ(pilot, "ty-s1-lab-1");
  workers_[0].busy = 0;
  Turn();
  Turn(kHourUs);
  EXPECT_FALSE(Has(DecisionKind::kDrain));
  listed_[0].state = ForeignState::kTimedOut;
  workers_.clear();
  Turn();
  EXPECT_EQ(At("lab", 1).reason, "it has reached its time limit");
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-2"));
  EXPECT_EQ(state_.providers.at("lab").breaker.failed_starts, 0) << "that is a normal end";
}

TEST_F(StepTest, ThePreferredProviderIsFilledFirst) {
  ProviderSpec cheap = Spec("cheap");
  cheap.max_pilots = 2;
  ProviderSpec dear = Spec("dear");
  dear.preference = 1;
  Add(cheap);
  Add(dear);
  for (int i = 0; i < 2; ++i) demand_.push_back({{{"cheap", 1}, {"dear", 1}}});
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-cheap-1"));
  Turn();
  EXPECT_THAT(decisions_, IsEmpty()) << "the second lot waits for the probe";
  demand_.push_back({{{"cheap", 1}, {"dear", 1}}});
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-dear-2"))
      << "three lots are more than the first provider may ever have";
}

TEST_F(StepTest, DemandGoesToTheNextProviderOnceTheFirstKeepsItWaiting) {
  ProviderSpec dear = Spec("dear");
  dear.preference = 1;
  Add(Spec("cheap"));
  Add(dear);
  demand_.push_back({{{"cheap", 1}, {"dear", 1}}});
  Turn();
  Reply("cheap", "ty-s1-cheap-1", "1");
  listed_ = {{"ty-s1-cheap-1", "1", ForeignState::kWaiting}};
  Turn(9 * kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(2 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-dear-2"));
  // It is not needed now, but keeps its place for a while.
  Turn(4 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), IsEmpty());
}

TEST_F(StepTest, DemandGoesToTheNextProviderIfTheFirstDoesNotAnswer) {
  ProviderSpec dear = Spec("dear");
  dear.preference = 1;
  Add(Spec("cheap"));
  Add(dear);
  demand_.push_back({{{"cheap", 1}, {"dear", 1}}});
  const auto turn = [&](int64_t passed_us) {
    now_ += passed_us;
    Inputs inputs;
    inputs.now_us = now_;
    inputs.demand = demand_;
    inputs.news["cheap"].listing = Listing{now_, "the controller is down"};
    inputs.news["dear"].listing = Listing{now_};
    decisions_ = Step(state_, inputs);
  };
  turn(kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty()) << "it may just be restarted";
  turn(10 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-dear-1"));
}

TEST_F(StepTest, AChangedSpecIsProbedAnewAndOldRequestsGo) {
  Add(Spec("lab"));
  Want("lab", 3);
  Connect("lab", "1");
  Turn();
  Reply("lab", "ty-s1-lab-2", "2");
  listed_.push_back({"ty-s1-lab-2", "2", ForeignState::kWaiting});
  ProviderSpec spec = Spec("lab");
  spec.node.cpus = 8;
  Add(spec);
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-3"));
  Turn(kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty()) << "the new kind has one probe";
  Turn(5 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-2"));
  EXPECT_EQ(At("lab", 1).state, PilotState::kRunning) << "what runs stays";
}

TEST_F(StepTest, AWaitingPilotKeepsItsPlaceIfNobodyElseCanServe) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  Reply("lab", "ty-s1-lab-1", "1");
  listed_ = {{"ty-s1-lab-1", "1", ForeignState::kWaiting}};
  for (int i = 0; i < 48; ++i) {
    Turn(kHourUs);
    ASSERT_THAT(decisions_, IsEmpty());
  }
}

TEST_F(StepTest, AnUnneededRequestIsCancelledAfterAWhile) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  Reply("lab", "ty-s1-lab-1", "1");
  listed_ = {{"ty-s1-lab-1", "1", ForeignState::kWaiting}};
  demand_.clear();
  Turn();
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(5 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-1"));
}

TEST_F(StepTest, AGangWaitsForItsLastPilot) {
  Add(Spec("lab"));
  demand_ = {{{{"lab", 2}}}};
  Connect("lab", "1");
  demand_ = {{{{"lab", 1}}}};
  workers_[0].busy = 0;
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-2"));
  Reply("lab", "ty-s1-lab-2", "2");
  listed_.push_back({"ty-s1-lab-2", "2", ForeignState::kWaiting});
  Turn(8 * kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(kHourUs);
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre("ty-s1-lab-1"))
      << "nobody knows how long it would wait";
}

TEST_F(StepTest, RefusedSubmissionsOpenTheBreakerAndOneProbeClosesIt) {
  Add(Spec("lab"));
  Want("lab", 4);
  for (int i = 1; i <= kFailedSubmissionsMax; ++i) {
    Turn(kSubmitIntervalMaxUs);
    ASSERT_TRUE(Has(DecisionKind::kSubmit)) << i;
    Refuse("lab", NamesOf(DecisionKind::kSubmit)[0]);
  }
  Turn();
  ASSERT_TRUE(Has(DecisionKind::kBreakerOpened));
  EXPECT_THAT(decisions_[0].reason, HasSubstr("10 submissions failed in a row"));
  EXPECT_THAT(decisions_[0].reason, HasSubstr("invalid partition"));
  Turn(kPauseFirstUs - kSecondUs);
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(2 * kSecondUs);
  EXPECT_TRUE(Has(DecisionKind::kBreakerHalfOpened));
  ASSERT_TRUE(Has(DecisionKind::kSubmit));
  Refuse("lab", NamesOf(DecisionKind::kSubmit)[0]);
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kBreakerOpened));
  Turn(kPauseFirstUs + kSecondUs);
  EXPECT_THAT(decisions_, IsEmpty()) << "the second pause is longer";
  Connect("lab", "1");
  EXPECT_FALSE(Has(DecisionKind::kBreakerClosed));
  Turn(kPauseFirstUs);
  const std::string probe = NamesOf(DecisionKind::kSubmit).at(0);
  workers_ = {{probe, 1, 1}};
  listed_ = {{probe, "1", ForeignState::kActive}};
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kBreakerClosed));
  EXPECT_TRUE(Has(DecisionKind::kSubmit));
}

TEST_F(StepTest, PilotsThatNeverConnectOpenTheBreaker) {
  Add(Spec("lab"));
  Want("lab", 1);
  for (int i = 1; i <= kFailedStartsMax; ++i) {
    Turn(kMinuteUs);
    ASSERT_TRUE(Has(DecisionKind::kSubmit)) << i;
    const std::string pilot = NamesOf(DecisionKind::kSubmit)[0];
    listed_ = {{pilot, std::to_string(i), ForeignState::kActive}};
    Turn();
    Turn(9 * kMinuteUs);
    EXPECT_THAT(decisions_, IsEmpty());
    Turn(2 * kMinuteUs);
    EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre(pilot));
    listed_.clear();
    EXPECT_EQ(Has(DecisionKind::kBreakerOpened), i == kFailedStartsMax);
  }
}

TEST_F(StepTest, TimeInWhichTheServerDidNotRunIsNoSilence) {
  Add(Spec("lab"));
  Want("lab", 1);
  Turn();
  listed_ = {{"ty-s1-lab-1", "1", ForeignState::kActive}};
  Turn();
  now_ += kHourUs;
  WakeUp(state_, now_);
  Turn();
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(11 * kMinuteUs);
  EXPECT_TRUE(Has(DecisionKind::kCancel));
}

TEST_F(StepTest, APausedProviderIsNotAsked) {
  Add(Spec("lab"));
  Want("lab", 1);
  ASSERT_TRUE(PauseProvider(state_, "lab", "maintenance").ok());
  Turn();
  EXPECT_THAT(decisions_, IsEmpty());
  ASSERT_TRUE(ResumeProvider(state_, "lab").ok());
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kSubmit));
}

TEST_F(StepTest, ARemovedProviderGoesOnceItsLastPilotHasEnded) {
  Add(Spec("lab"));
  Want("lab", 2);
  Connect("lab", "1");
  Turn();
  Reply("lab", "ty-s1-lab-2", "2");
  listed_.push_back({"ty-s1-lab-2", "2", ForeignState::kWaiting});
  ASSERT_TRUE(RemoveProvider(state_, "lab").ok());
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-2"));
  listed_.pop_back();
  Turn(kHourUs);
  EXPECT_FALSE(Has(DecisionKind::kDrain)) << "the other one is busy";
  workers_[0].busy = 0;
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kDrain));
  workers_[0].is_draining = true;
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-1"));
  listed_.clear();
  Turn();
  EXPECT_TRUE(Has(DecisionKind::kForgetProvider));
  EXPECT_TRUE(state_.providers.empty());
  EXPECT_EQ(ErrorReason(PauseProvider(state_, "lab", "")), "PROVIDER_NOT_FOUND");
  Add(Spec("lab"));
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kSubmit), ElementsAre("ty-s1-lab-3"));
}

TEST_F(StepTest, ALowerMaximumDrainsWhatIsIdle) {
  Add(Spec("lab"));
  Want("lab", 2);
  Connect("lab", "1");
  Connect("lab", "2");
  demand_.clear();
  for (WorkerSight& worker : workers_) worker.busy = 0;
  Turn();
  ProviderSpec spec = Spec("lab");
  spec.max_pilots = 1;
  Add(spec);
  Turn();
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre("ty-s1-lab-1"));
}

TEST_F(StepTest, APilotOfWhichNothingIsHeardIsCancelled) {
  Add(Spec("lab"));
  Want("lab", 1);
  Connect("lab", "1");
  demand_.clear();
  workers_.clear();
  Turn();
  Turn(9 * kMinuteUs);
  EXPECT_THAT(decisions_, IsEmpty());
  Turn(2 * kMinuteUs);
  EXPECT_THAT(NamesOf(DecisionKind::kCancel), ElementsAre("ty-s1-lab-1"));
  EXPECT_EQ(state_.providers.at("lab").breaker.failed_starts, 0);
}

TEST(ProviderSpecTest, AllViolationsAreNamed) {
  ProviderSpec spec;
  spec.name = "Lab";
  spec.max_pilots = 0;
  spec.node.devices = 0;
  spec.cost_per_hour = -1;
  const absl::Status status = CheckProviderSpec(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> fields;
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    fields.push_back(violation.field);
  }
  EXPECT_THAT(fields, ElementsAre("name", "owner", "node.devices", "max_pilots", "cost_per_hour"));
}

TEST(ProviderSpecTest, CostsAreNumbersThatCanBeWrittenDown) {
  ProviderSpec spec = Spec("lab");
  EXPECT_TRUE(CheckProviderSpec(spec).ok());
  for (const double cost :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    spec.cost_per_hour = cost;
    EXPECT_EQ(GetFieldViolations(CheckProviderSpec(spec)).size(), 1u) << cost;
  }
}

TEST(ProviderSpecTest, ADeviceTypeIsOneThatAWorkerMayHave) {
  ProviderSpec spec = Spec("lab");
  for (const std::string& type :
       {std::string("h200"), std::string("rtx-6000_ada.2"), std::string(63, 'x')}) {
    spec.node.device_type = type;
    EXPECT_TRUE(CheckProviderSpec(spec).ok()) << type;
  }
  for (const std::string& type :
       {std::string(), std::string("h 200"), std::string("h200\n"), std::string(64, 'x')}) {
    spec.node.device_type = type;
    EXPECT_EQ(GetFieldViolations(CheckProviderSpec(spec)).size(), 1u) << type;
  }
}

TEST(ProviderSpecTest, DataSetsHaveNames) {
  ProviderSpec spec = Spec("lab");
  spec.datasets = {"mnist", "images:flowers/small"};
  EXPECT_TRUE(CheckProviderSpec(spec).ok());
  for (const std::string& name : {std::string(), std::string("my data"), std::string(201, 'x')}) {
    spec.datasets = {"mnist", name};
    EXPECT_EQ(GetFieldViolations(CheckProviderSpec(spec)).size(), 1u) << name;
  }
  spec.datasets.assign(kDatasetsMax, "mnist");
  EXPECT_TRUE(CheckProviderSpec(spec).ok());
  spec.datasets.push_back("mnist");
  EXPECT_EQ(GetFieldViolations(CheckProviderSpec(spec)).size(), 1u);
}

TEST(ProviderSpecTest, NamesOfPilotsCanBeTakenApart) {
  EXPECT_EQ(PilotName("s1", "a-1", 3), "ty-s1-a-1-3");
  EXPECT_EQ(PilotNumber("s1", "a-1", "ty-s1-a-1-3"), 3);
  EXPECT_EQ(PilotNumber("s1", "a", "ty-s1-a-1-3"), std::nullopt);
  EXPECT_EQ(PilotNumber("s1", "a", "ty-s1-a-"), std::nullopt);
  EXPECT_EQ(PilotNumber("s1", "a", "ty-s1-a-0"), std::nullopt);
  EXPECT_EQ(PilotNumber("s1", "a", "ty-s1-a-99999999999999999999"), std::nullopt);
  EXPECT_EQ(PilotWorkerName("ty-s1-a-3", 1, 0), "ty-s1-a-3");
  EXPECT_EQ(PilotWorkerName("ty-s1-a-3", 2, 1), "ty-s1-a-3-n1");
  EXPECT_EQ(PilotOfWorker("ty-s1-a-3-n1"), "ty-s1-a-3");
  EXPECT_EQ(PilotOfWorker("ty-s1-a-3"), "ty-s1-a-3");
  EXPECT_EQ(PilotOfWorker("desk-n"), "desk-n");
}

}  // namespace
}  // namespace trainyard::provision
