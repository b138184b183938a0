// A state of providers with a clock, and their clusters and workers as a test sets them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/provision/core/step.h"

namespace trainyard::provision {

inline constexpr int64_t kStart = 1'700'000'000 * kSecondUs;

inline ProviderSpec Spec(const std::string& name) {
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
  // Adds a provider with one pilot that has connected and has no work any more.
  void AddWithIdlePilot(const ProviderSpec& spec) {
    Add(spec);
    Want(spec.name, 1);
    ASSERT_NE(Connect(spec.name, "77"), "");
    workers_[0].busy = 0;
    demand_.clear();
    Turn();
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

}  // namespace trainyard::provision
