// Compares asynchronous successive halving with a plain implementation of the paper, decision by
// decision, on toy learning curves.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/server/core/sweeping/sweep_fixture.h"

namespace trainyard::core::sweeping {
namespace {

// Keeps a list of results for each rung, as the paper does, and sorts it whenever it is asked.
class PlainAsha {
 public:
  PlainAsha(int trials, int places, int factor, int rungs, bool waits)
      : factor_(factor),
        places_(places),
        waits_(waits),
        rungs_(static_cast<size_t>(rungs)),
        at_(static_cast<size_t>(trials), -1),
        phase_(static_cast<size_t>(trials), kNew) {}

  std::vector<std::string> Begin() {
    Fill();
    return std::move(texts_);
  }

  std::vector<std::string> Told(int trial, double value) {
    const int rung = At(trial);
    if (rung + 1 == static_cast<int>(rungs_.size())) {
      PhaseOf(trial) = kDone;
      has_winner_ = true;
    } else {
      rungs_[static_cast<size_t>(rung)].push_back({value, trial});
      PhaseOf(trial) = kWaiting;
      if (Rank(trial, rung) < Quota(rung) || IsLastHope(trial)) {
        Promote(trial);
      } else if (waits_) {
        texts_.push_back(absl::StrCat("pause ", trial));
      } else if (Rank(trial, rung) < std::max(1, Quota(rung))) {
        Promote(trial);
      } else {
        PhaseOf(trial) = kDone;
        texts_.push_back(absl::StrCat("stop ", trial, ": others were better"));
      }
    }
    Fill();
    return std::move(texts_);
  }

  std::vector<std::string> Failed(int trial) {
    PhaseOf(trial) = kDone;
    rungs_[static_cast<size_t>(At(trial))].push_back({-1e300, trial});
    Fill();
    return std::move(texts_);
  }

 private:
  enum Phase { kNew, kRunning, kWaiting, kDone };
  struct Result {
    double value;
    int trial;
  };

  int& At(int trial) { return at_[static_cast<size_t>(trial)]; }
  Phase& PhaseOf(int trial) { return phase_[static_cast<size_t>(trial)]; }
  int Count(Phase phase) const {
    return static_cast<int>(std::count(phase_.begin(), phase_.end(), phase));
  }
  int Quota(int rung) const {
    return static_cast<int>(rungs_[static_cast<size_t>(rung)].size()) / factor_;
  }

  std::vector<Result> Sorted(int rung) const {
    std::vector<Result> results = rungs_[static_cast<size_t>(rung)];
    std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) {
      return a.value != b.value ? a.value > b.value : a.trial < b.trial;
    });
    return results;
  }
  int Rank(int trial, int rung) const {
    const std::vector<Result> results = Sorted(rung);
    int rank = 0;
    while (results[static_cast<size_t>(rank)].trial != trial) ++rank;
    return rank;
  }

  void Promote(int trial) {
    PhaseOf(trial) = kRunning;
    ++At(trial);
    texts_.push_back(absl::StrCat("continue ", trial, " to ", At(trial)));
  }

  // Returns the trial of the paper's get_job, or -1.
  int Promotable() {
    for (int rung = static_cast<int>(rungs_.size()) - 2; rung >= 0; --rung) {
      const std::vector<Result> results = Sorted(rung);
      for (int i = 0; i < Quota(rung); ++i) {
        const int trial = results[static_cast<size_t>(i)].trial;
        if (PhaseOf(trial) == kWaiting && At(trial) == rung) return trial;
      }
    }
    return -1;
  }

  int BestOfTheHighestRung() {
    for (int rung = static_cast<int>(rungs_.size()) - 2; rung >= 0; --rung) {
      for (const Result& result : Sorted(rung)) {
        if (PhaseOf(result.trial) == kWaiting && At(result.trial) == rung) return result.trial;
      }
    }
    return -1;
  }

  bool IsLastHope(int trial) {
    return Count(kRunning) == 0 && Count(kNew) == 0 && !has_winner_ && Promotable() < 0 &&
           BestOfTheHighestRung() == trial;
  }

  void Fill() {
    while (Count(kRunning) < places_) {
      if (const int trial = Promotable(); trial >= 0) {
        Promote(trial);
      } else if (Count(kNew) > 0) {
        const int next = static_cast<int>(phase_.size()) - Count(kNew);
        PhaseOf(next) = kRunning;
        At(next) = 0;
        texts_.push_back(absl::StrCat("start ", next));
      } else if (Count(kRunning) == 0 && !has_winner_ && BestOfTheHighestRung() >= 0) {
        Promote(BestOfTheHighestRung());
      } else {
        break;
      }
    }
    if (Count(kRunning) > 0) return;
    for (int trial = 0; trial < static_cast<int>(phase_.size()); ++trial) {
      if (PhaseOf(trial) != kWaiting) continue;
      PhaseOf(trial) = kDone;
      texts_.push_back(absl::StrCat("stop ", trial, ": others were better"));
    }
    texts_.push_back("succeeded: all trials have ended");
  }

  const int factor_;
  const int places_;
  const bool waits_;
  std::vector<std::vector<Result>> rungs_;
  std::vector<int> at_;
  std::vector<Phase> phase_;
  bool has_winner_ = false;
  std::vector<std::string> texts_;
};

// A learning curve: the value approaches a limit, some fast and some slowly.
struct Curve {
  double limit = 0;
  double rate = 1;
  double At(double share) const { return limit * (1 - std::exp(-rate * share * 9)); }
};

TEST(AshaReference, DecisionsAreThoseOfThePaperOnToyCurves) {
  int promotions = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int from, int to) {
      return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
    };
    Definition definition = {.search = Search::kAsha,
                             .trials = pick(1, 40),
                             .concurrent = pick(1, 9),
                             .factor = pick(2, 4),
                             .rungs = pick(2, 4)};
    definition.pause = pick(0, 2) > 0;
    std::vector<Curve> curves(static_cast<size_t>(definition.trials));
    for (Curve& curve : curves) {
      curve = {.limit = pick(1, 12) / 10.0, .rate = pick(1, 5) * 1.0};
    }
    const int failure_percent = pick(0, 1) * 8;

    PlainAsha plain(definition.trials, definition.concurrent, definition.factor, definition.rungs,
                    *definition.pause);
    Sweep sweep(definition);
    ASSERT_EQ(sweep.Run(), plain.Begin()) << "seed " << seed;
    bool has_value = false;
    for (int step = 0; !sweep.state().has_ended(); ++step) {
      ASSERT_LT(step, 1000);
      std::vector<int32_t> active;
      for (int32_t i = 0; i < static_cast<int32_t>(sweep.state().trials().size()); ++i) {
        if (sweep.trial_at(i).status == TrialStatus::kActive) active.push_back(i);
      }
      const int32_t trial =
          active[static_cast<size_t>(pick(0, static_cast<int>(active.size()) - 1))];
      const int32_t rung = sweep.trial_at(trial).rung;
      const bool fails = has_value && pick(0, 99) < failure_percent;
      has_value = true;
      if (fails) {
        ASSERT_EQ(sweep.Fail(trial), plain.Failed(trial)) << "seed " << seed << ", step " << step;
        continue;
      }
      const double value = curves[static_cast<size_t>(trial)].At(RungShare(definition, rung));
      const auto decisions =
          rung + 1 == definition.rungs ? sweep.Succeed(trial, value) : sweep.Report(trial, value);
      ASSERT_EQ(decisions, plain.Told(trial, value)) << "seed " << seed << ", step " << step;
      promotions += rung > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(promotions, 1000);
}

}  // namespace
}  // namespace trainyard::core::sweeping
