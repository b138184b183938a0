// Tests properties of sweeps in random worlds: values, failures, requests and the order of events
// are drawn, and the server may be killed anywhere.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

bool IsDecision(const Entry& entry) {
  return entry.kind >= EntryKind::kStarted;
}

class SweepWorld {
 public:
  explicit SweepWorld(unsigned seed) : random_(seed), state_(Define()) {}

  // Lets the world go on until the sweep has ended for good.
  void Run() {
    while (!::testing::Test::HasFatalFailure()) {
      ASSERT_LT(++steps_, 20'000) << "the sweep does not end";
      // Events may arrive before all is decided that could be.
      while (Pick(8) != 0 && DecideOnce()) {
      }
      if (state_.has_ended() && !Happens(requests_left_ > 0 && Pick(3) == 0 ? Retry() : Entry{})) {
        break;
      }
      if (!state_.has_ended()) Happens(NextEvent());
    }
  }

  // Folds the record afresh. Whatever was decided is decided again at the same place.
  void Replay() const {
    State state(state_.definition());
    for (size_t i = 0; i < record_.size(); ++i) {
      if (IsDecision(record_[i])) {
        const std::optional<Entry> again = Decide(state);
        ASSERT_TRUE(again.has_value()) << "entry " << i;
        ASSERT_EQ(*again, record_[i]) << TextOf(*again) << ", not " << TextOf(record_[i]);
      }
      ASSERT_TRUE(state.Apply(record_[i])) << TextOf(record_[i]);
    }
    ASSERT_EQ(state.end(), state_.end());
    ASSERT_EQ(state.end_text(), state_.end_text());
    ASSERT_EQ(state.best(), state_.best());
    ASSERT_EQ(state.trials_since_best(), state_.trials_since_best());
  }

  const std::vector<Entry>& record() const { return record_; }

 private:
  Definition Define() {
    Definition definition;
    definition.search = static_cast<Search>(Pick(4));
    definition.maximize = Pick(2) == 0;
    definition.trials = 1 + Pick(20);
    definition.concurrent = 1 + Pick(Pick(3) == 0 ? 25 : 4);
    definition.factor = 2 + Pick(3);
    definition.rungs = 1 + Pick(4);
    definition.quantile = 0.1 * (1 + Pick(5));
    if (Pick(4) == 0) definition.target = definition.maximize ? 95 : 5;
    if (Pick(4) == 0) definition.patience = 1 + Pick(6);
    if (Pick(3) == 0) definition.pause = Pick(2) == 0;
    failure_percent_ = Pick(3) * 10;
    requests_left_ = Pick(3) == 0 ? 0 : Pick(8);
    return definition;
  }

  int32_t Pick(int32_t count) {
    return static_cast<int32_t>(random_() % static_cast<uint32_t>(count));
  }

  bool DecideOnce() {
    const std::optional<Entry> next = Decide(state_);
    if (!next.has_value()) return false;
    EXPECT_TRUE(IsDecision(*next));
    CheckDecision(*next);
    const bool is_taken = state_.Apply(*next);
    EXPECT_TRUE(is_taken) << TextOf(*next);
    if (!is_taken) return false;
    record_.push_back(*next);
    CheckState();
    return true;
  }

  void CheckDecision(const Entry& next) {
    if (next.kind == EntryKind::kStarted) {
      EXPECT_TRUE(started_.insert(next.trial).second) << "it begins twice";
    }
    if (next.kind == EntryKind::kExploited) {
      const Trial& trial = At(next.trial);
      const Trial& donor = At(next.donor);
      EXPECT_EQ(donor.held_step, next.step);
      EXPECT_GT(next.step, 0);
      EXPECT_EQ(donor.rung + 1, next.rung);
      if (trial.status != TrialStatus::kFailed) {
        EXPECT_FALSE(state_.IsBetter(trial.reports.at(donor.rung).value,
                                     donor.reports.at(donor.rung).value));
      }
    }
    if (next.kind == EntryKind::kContinued) {
      for (const Copy& copy : state_.copies()) {
        EXPECT_FALSE(copy.donor == next.trial && state_.IsPossible(copy)) << "it is to be copied";
      }
    }
  }

  void CheckState() const {
    int32_t active = 0;
    for (const Trial& trial : state_.trials()) {
      active += trial.status == TrialStatus::kActive ? 1 : 0;
    }
    EXPECT_EQ(active, state_.active());
    EXPECT_LE(active, state_.definition().concurrent);
    EXPECT_LE(static_cast<int32_t>(state_.trials().size()), state_.definition().trials);
    EXPECT_FALSE(state_.has_ended() && active > 0);
    EXPECT_EQ(state_.best(), BestByDefinition());
  }

  int32_t BestByDefinition() const {
    int32_t best = -1;
    for (int32_t i = 0; i < static_cast<int32_t>(state_.trials().size()); ++i) {
      const Trial& trial = At(i);
      if (!trial.last.has_value() || !state_.IsBetter(trial.last->value, std::nan(""))) continue;
      const bool is_better = best < 0 || state_.IsBetter(trial.last->value, At(best).last->value);
      const bool is_earlier = best >= 0 && trial.last->value == At(best).last->value &&
                              trial.last_told < At(best).last_told;
      if (is_better || is_earlier) best = i;
    }
    return best;
  }

  const Trial& At(int32_t trial) const { return state_.trials()[static_cast<size_t>(trial)]; }

  // Tells the sweep what has happened. Some things are told twice.
  bool Happens(const Entry& event) {
    const bool is_taken = state_.Apply(event);
    if (is_taken) record_.push_back(event);
    CheckState();
    if (is_taken && event.kind == EntryKind::kReported) {
      EXPECT_FALSE(state_.Apply(event));
    }
    return is_taken;
  }

  static Entry Retry() { return {.kind = EntryKind::kRetryRequested}; }

  double Value() {
    const int32_t kind = Pick(20);
    if (kind == 0) return std::nan("");
    if (kind == 1) return std::numeric_limits<double>::infinity() * (Pick(2) == 0 ? 1 : -1);
    return Pick(100);
  }

  Entry Request() {
    --requests_left_;
    switch (Pick(8)) {
      case 0:
        return {.kind = EntryKind::kCancelRequested};
      case 1:
        return {.kind = EntryKind::kBudgetUsed};
      case 2:
      case 3:
        return Retry();
      default:
        return {.kind = EntryKind::kStopRequested};
    }
  }

  Entry NextEvent() {
    if (state_.is_stopping() && Pick(6) == 0) return {.kind = EntryKind::kResumeRequested};
    if (requests_left_ > 0 && Pick(20) == 0) return Request();
    if (state_.trials().empty()) return {};
    const int32_t index = Pick(static_cast<int32_t>(state_.trials().size()));
    const Trial& trial = At(index);
    const int32_t last = RungCount(state_.definition()) - 1;
    const int64_t step = 10 * (trial.rung + 1) + Pick(5);
    if (Pick(100) < failure_percent_ && Pick(4) == 0) {
      return {.kind = EntryKind::kFailed, .trial = index, .text = "out of memory"};
    }
    if (trial.status == TrialStatus::kPaused && !trial.held_step.has_value() && Pick(3) != 0) {
      return {.kind = EntryKind::kHeld, .trial = index, .step = Pick(5) == 0 ? 0 : step};
    }
    const bool runs_past = Pick(30) == 0;
    if (trial.status != TrialStatus::kActive && !runs_past) return {.trial = -1};
    if (trial.rung == last || runs_past) {
      return {.kind = EntryKind::kSucceeded, .trial = index, .step = step, .value = Value()};
    }
    return {.kind = EntryKind::kReported,
            .trial = index,
            .rung = trial.rung,
            .step = step,
            .value = Value(),
            .can_pause = Pick(4) != 0};
  }

  std::mt19937 random_;
  int32_t failure_percent_ = 0;
  int32_t requests_left_ = 0;
  int steps_ = 0;
  State state_;
  std::vector<Entry> record_;
  std::set<int32_t> started_;
};

TEST(Replay, ARecordGivesTheSameDecisionsWhereverTheServerIsKilled) {
  std::map<EntryKind, int> seen;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    SweepWorld world(seed);
    world.Run();
    world.Replay();
    if (::testing::Test::HasFailure()) return;
    for (const Entry& entry : world.record()) ++seen[entry.kind];
  }
  for (int kind = 0; kind <= static_cast<int>(EntryKind::kEnded); ++kind) {
    EXPECT_GT(seen[static_cast<EntryKind>(kind)], 100) << "kind " << kind << " is hardly tried";
  }
}

}  // namespace
}  // namespace trainyard::core::sweeping
