// Tests the decisions about pilots, one rule at a time. The simulation beside this file lets them
// all meet.
#include "server/provision/core/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/base/errors.h"
#include "server/provision/core/breaker.h"
#include "server/provision/core/demand.h"
#include "server/provision/core/observe.h"

namespace trainyard::provision {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kStart = 1'700'000'000 * kSecondUs;

ProviderSpec Spec(const std::string& name) {
  ProviderSpec spec;
  spec.name = name;
  spec.owner = "ada";
  spec.max_pilots = 4;
  spec.backlog = 2;
  return spec;
}

// A state with a clock, and a provider's side that a test sets by hand.
class StepTest : public ::testing::Test {
 protected:
  StepTest() {
    state_.server_id = "s1";
    now_ = kStart;
    WakeUp(state_, now_);
  }

  void Add(const ProviderSpec& spec) { ASSERT_TRUE(SetProvider(state_, spec).ok()); }

  // Lets time pass, and takes a turn with a complete listing of each provider.
  std::vector<Decision> Turn(int64_t passed_us = 10 * kSecondUs, const std::string& failure = "") {
    now_ += passed_us;
    Inputs inputs = std::move(next_);
    next_ = Inputs();
    inputs.now_us = now_;
    inputs.demand = demand_;
    inputs.workers = workers_;
    for (const auto& [name, provider] : state_.providers) {
      Listing listing;
      listing.begin_us = now_ - kSecondUs;
      listing.failure = failure;
      if (failure.empty()) listing.pilots = listed_;
      inputs.news[name].listing = listing;
    }
    decisions_ = Step(state_, inputs);
    return decisions_;
  }

  std::vector<std::string> NamesOf(DecisionKind kind) const {
    std::vector<std::string> names;
    for (const Decision& decision : decisions_) {
      if (decision.kind == kind) names.push_back(decision.pilot);
    }
    return names;
  }
  bool Has(DecisionKind kind) const {
    for (const Decision& decision : decisions_) {
      if (decision.kind == kind) return true;
    }
    return false;
  }

  void Reply(const std::string& provider, const std::string& pilot, const std::string& id) {
    next_.news[provider].submitted.push_back({pilot, SubmitResult::Kind::kAccepted, id, ""});
  }
  void Refuse(const std::string& provider, const std::string& pilot) {
    next_.news[provider].submitted.push_back(
        {pilot, SubmitResult::Kind::kRefused, "", "invalid partition"});
  }
  void Want(const std::string& provider, int32_t lots) {
    for (int32_t i = 0; i < lots; ++i) demand_.push_back({{{provider, 1}}});
  }
  // Asks for a pilot, lets it begin and connect.
  std::string Connect(const std::string& provider, const std::string& id) {
    Turn();
    const std::vector<std::string> names = NamesOf(DecisionKind::kSubmit);
    if (names.size() != 1) return "";
    listed_.push_back({names[0], id, ForeignState::kActive});
    workers_.push_back({names[0], 1, 1});
    Reply(provider, names[0], id);
    Turn(kSecondUs);
    return names[0];
  }
  const Pilot& At(const std::string& provider, int64_t number) {
    return state_.providers.at(provider).pilots.at(number);
  }

  State state_;
  int64_t now_ = 0;
  Inputs next_;
  std::vector<Lot> demand_;
  std::vector<ListedPilot> listed_;
  std::vector<WorkerSight> workers_;
  std::vector<Decision> decisions_;
};

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
  ProviderSpec spec = Spec("lab");
  Add(spec);
  Want("lab", 1);
  ASSERT_NE(Connect("lab", "77"), "");
  workers_[0].busy = 0;
  demand_.clear();
  Turn();
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
  ProviderSpec spec = Spec("lab");
  Add(spec);
  Want("lab", 1);
  ASSERT_NE(Connect("lab", "77"), "");
  workers_[0].busy = 0;
  demand_.clear();
  Turn();
  // The server starts again eight hours earlier by the clock.
  now_ -= 8 * kHourUs;
  WakeUp(state_, now_);
  Turn();
  EXPECT_EQ(state_.providers.at("lab").listing_failure, "");
  EXPECT_GT(state_.providers.at("lab").listing_us, now_ - kMinuteUs);
  Turn(spec.idle_us);
  EXPECT_THAT(NamesOf(DecisionKind::kDrain), ElementsAre("ty-s1-lab-1"));
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
