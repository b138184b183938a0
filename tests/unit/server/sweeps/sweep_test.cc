// Tests what a sweep makes of its record: what it shows, and what it wants to be done.
#include "server/sweeps/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/sweeps/view.h"

namespace trainyard::sweeps {
namespace {

using core::sweeping::Entry;
using core::sweeping::EntryKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

store::SweepRecord Asked() {
  store::SweepRecord record;
  record.number = 3;
  record.user = "anna";
  record.spec.set_name("look");
  v1::SweepSpec& sweep = *record.spec.mutable_sweep();
  (*sweep.mutable_parameters())["optimizer.sgd.lr"] = "log(1e-4, 1)";
  sweep.set_maximize("test.accuracy");
  sweep.set_search(v1::SWEEP_SEARCH_ASHA);
  sweep.set_trials(4);
  sweep.set_concurrent(2);
  sweep.set_factor(2);
  sweep.set_rungs(3);
  return record;
}

class SweepTest : public ::testing::Test {
 protected:
  // Writes down what has happened, and what is decided then.
  void Happen(const std::vector<Entry>& happened) {
    const std::vector<Entry> entries = sweep_.Extend(happened, /*now_us=*/7);
    record_.entries.insert(record_.entries.end(), entries.begin(), entries.end());
    ASSERT_TRUE(sweep_.TakeOver(entries).ok());
  }

  runtime::Notifier notifier_;
  runtime::Board board_{notifier_};
  Sweep sweep_ = *Sweep::Load(Asked(), {});
  store::SweepHistory record_;
};

TEST_F(SweepTest, JobsAreAskedForUntilTheyAreThere) {
  Happen({});
  ASSERT_EQ(sweep_.state().trials().size(), 2U) << "two at a time";
  for (int look = 0; look < 2; ++look) {
    const std::vector<Action> actions = sweep_.Actions(board_);
    ASSERT_EQ(actions.size(), 2U) << "nothing is there yet";
    EXPECT_EQ(actions[0].kind, Action::Kind::kSubmit);
    EXPECT_EQ(actions[1].made.trial, 1);
    EXPECT_EQ(actions[1].made.begin.values, sweep_.ValuesOf(1));
  }
  sweep_.NoteRefusal({0, 0, {}}, absl::UnavailableError("later"));
  EXPECT_THAT(sweep_.trouble(), HasSubstr("again soon: later"));
  EXPECT_EQ(sweep_.Actions(board_).size(), 2U);
  sweep_.NoteRefusal({0, 0, {}}, absl::InvalidArgumentError("never"));
  EXPECT_EQ(sweep_.Actions(board_).size(), 1U);
}

TEST_F(SweepTest, ARecordThatIsReadAgainGivesTheSame) {
  Happen({});
  Entry ended;
  ended.kind = EntryKind::kSucceeded;
  ended.step = 10;
  ended.value = 0.5;
  Happen({ended});
  record_.jobs = {{0, 0, JobId{12}}, {1, 0, JobId{13}}};
  for (const store::TrialJob& job : record_.jobs) sweep_.NoteJob(job);
  const auto again = Sweep::Load(Asked(), record_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->next_sequence(), sweep_.next_sequence());
  EXPECT_EQ(ViewOf(*again, board_, 0, true).SerializeAsString(),
            ViewOf(sweep_, board_, 0, true).SerializeAsString());
}

TEST_F(SweepTest, IsShownWithItsBestTrialAndWhatItCouldNotDo) {
  Happen({});
  Entry ended;
  ended.kind = EntryKind::kSucceeded;
  ended.step = 10;
  ended.value = 0.5;
  Happen({ended});
  const v1::Sweep shown = ViewOf(sweep_, board_, 0, /*with_trials=*/true);
  EXPECT_EQ(shown.name(), "sweeps/3");
  EXPECT_EQ(shown.state(), v1::SWEEP_STATE_RUNNING);
  EXPECT_EQ(shown.best_trial(), 0);
  EXPECT_EQ(shown.best_value(), 0.5);
  EXPECT_EQ(shown.trials(0).state(), v1::TRIAL_STATE_SUCCEEDED);
  EXPECT_THAT(shown.rungs(), ElementsAre(0.25, 0.5, 1));
  EXPECT_THAT(shown.warnings(), ElementsAre(HasSubstr("1 trial was trained to the end without")));
  const v1::Sweep listed = ViewOf(sweep_, board_, 0, /*with_trials=*/false);
  EXPECT_EQ(listed.trials_size(), 1) << "lists have the best one alone";
  EXPECT_EQ(listed.spec().name(), "");
  v1::Sweep decided;
  AddDecisions(record_.entries, /*after=*/2, decided);
  ASSERT_GE(decided.decisions_size(), 1);
  EXPECT_EQ(decided.decisions(0).sequence(), 3);
  EXPECT_EQ(decided.decisions(0).text(), "trial 0 was trained to its end: 0.5 at step 10");
}

}  // namespace
}  // namespace trainyard::sweeps
