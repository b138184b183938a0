// Tells a sweep what happens to its trials, and writes its decisions as short texts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/core/sweeping/decide.h"

namespace trainyard::core::sweeping {

inline std::string TextOf(const Entry& entry) {
  const auto with = [&](const char* what) { return absl::StrCat(what, " ", entry.trial); };
  switch (entry.kind) {
    case EntryKind::kStarted:
      return with("start");
    case EntryKind::kRestarted:
      return with("restart");
    case EntryKind::kContinued:
      return absl::StrCat(with("continue"), " to ", entry.rung);
    case EntryKind::kPaused:
      return with("pause");
    case EntryKind::kTrialStopped:
      return absl::StrCat(with("stop"), ": ", entry.text);
    case EntryKind::kExploited:
      return absl::StrCat(with("exploit"), " from ", entry.donor, " at ", entry.step, " to ",
                          entry.rung);
    case EntryKind::kEnded:
      return absl::StrCat(entry.end == End::kSucceeded ? "succeeded"
                          : entry.end == End::kStopped ? "stopped"
                          : entry.end == End::kFailed  ? "failed"
                                                       : "?",
                          ": ", entry.text);
    case EntryKind::kReported:
      return absl::StrCat(with("report"), " ", entry.value, " at ", entry.rung);
    default:
      return absl::StrCat("entry ", static_cast<int>(entry.kind), " of ", entry.trial);
  }
}

// A sweep with its record. Each event is answered with the decisions that follow from it.
class Sweep {
 public:
  using Decisions = std::vector<std::string>;

  explicit Sweep(Definition definition) : state_(std::move(definition)) {}

  // Decides until there is nothing to decide.
  Decisions Run() {
    Decisions decisions;
    for (auto next = Decide(state_); next.has_value(); next = Decide(state_)) {
      decisions.push_back(TextOf(*next));
      EXPECT_TRUE(Take(*next)) << decisions.back();
      if (decisions.size() > 1000) ADD_FAILURE() << "it decides for ever";
      if (decisions.size() > 1000) break;
    }
    return decisions;
  }
  // Takes an entry over without deciding.
  bool Take(const Entry& entry) {
    const bool is_taken = state_.Apply(entry);
    if (is_taken) record_.push_back(entry);
    return is_taken;
  }
  Decisions After(const Entry& entry) {
    EXPECT_TRUE(Take(entry)) << TextOf(entry);
    return Run();
  }

  Entry Reported(int32_t trial, double value, bool can_pause = true) const {
    const int32_t rung = trial_at(trial).rung;
    return {.kind = EntryKind::kReported,
            .trial = trial,
            .rung = rung,
            .step = 10 * (rung + 1),
            .value = value,
            .can_pause = can_pause};
  }
  Decisions Report(int32_t trial, double value, bool can_pause = true) {
    return After(Reported(trial, value, can_pause));
  }
  Decisions Succeed(int32_t trial, double value) {
    return After({.kind = EntryKind::kSucceeded, .trial = trial, .step = 100, .value = value});
  }
  Decisions Fail(int32_t trial) {
    return After({.kind = EntryKind::kFailed, .trial = trial, .text = "out of memory"});
  }
  Decisions Hold(int32_t trial, int64_t step) {
    return After({.kind = EntryKind::kHeld, .trial = trial, .step = step});
  }
  Decisions Ask(EntryKind kind) { return After({.kind = kind, .text = "ann"}); }

  const State& state() const { return state_; }
  const Trial& trial_at(int32_t trial) const {
    return state_.trials().at(static_cast<size_t>(trial));
  }
  const std::vector<Entry>& record() const { return record_; }

 private:
  State state_;
  std::vector<Entry> record_;
};

}  // namespace trainyard::core::sweeping
