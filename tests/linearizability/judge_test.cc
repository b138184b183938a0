#include "tests/linearizability/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/linearizability/job_model.h"

namespace trainyard::linearizability {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Writes a history down. Operations come one after the other, unless they are put back in time.
class Writer {
 public:
  Operation& Add(Verb verb, int64_t job, Answer answer) {
    Operation operation;
    operation.verb = verb;
    operation.job = job;
    operation.answer = answer;
    operation.call = ++time_;
    if (answer != Answer::kUnknown) operation.end = ++time_;
    history_.push_back(operation);
    return history_.back();
  }

  Operation& Create(const std::string& request, int64_t job, int64_t revision, bool runs = false) {
    Operation& operation = Add(Verb::kCreate, 0, Answer::kDone);
    operation.request = request;
    operation.seen = {{job, Phase::kQueued, revision, request, runs}};
    return operation;
  }
  Operation& CreateUnknown(const std::string& request) {
    Operation& operation = Add(Verb::kCreate, 0, Answer::kUnknown);
    operation.request = request;
    return operation;
  }
  Operation& Do(Verb verb, int64_t job, Phase phase, int64_t revision) {
    Operation& operation = Add(verb, job, Answer::kDone);
    operation.seen = {{job, phase, revision, RequestOf(job)}};
    return operation;
  }
  Operation& Get(int64_t job, Phase phase, int64_t revision) {
    return Do(Verb::kGet, job, phase, revision);
  }
  Operation& List(const std::vector<Sighting>& seen) {
    Operation& operation = Add(Verb::kList, 0, Answer::kDone);
    operation.seen = seen;
    return operation;
  }

  std::vector<std::string> Anomalies() const { return Judge(history_).anomalies; }
  const History& history() const { return history_; }

  static std::string RequestOf(int64_t job) {
    return std::string(1, static_cast<char>('a' + job - 1));
  }

 private:
  int64_t time_ = 0;
  History history_;
};

TEST(Judge, AnOrdinaryLifeIsExplained) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 6);
  w.Add(Verb::kDelete, 1, Answer::kRefused);
  w.Do(Verb::kResume, 1, Phase::kQueued, 7);
  w.Create("b", 2, 8);
  w.Do(Verb::kCancel, 1, Phase::kCancelled, 9);
  w.Do(Verb::kCancel, 1, Phase::kCancelled, 9);
  w.Add(Verb::kSuspend, 1, Answer::kRefused);
  w.List({{2, Phase::kQueued, 8, "b"}, {1, Phase::kCancelled, 9, "a"}});
  w.Add(Verb::kDelete, 1, Answer::kDone);
  w.Add(Verb::kGet, 1, Answer::kMissing);
  w.List({{2, Phase::kQueued, 8, "b"}});
  EXPECT_THAT(w.Anomalies(), IsEmpty());
}

TEST(Judge, ALostSubmissionIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Add(Verb::kGet, 1, Answer::kMissing);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));

  Writer listed;
  listed.Create("a", 1, 5);
  listed.List({});
  EXPECT_THAT(listed.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, ADoubledSubmissionIsFound) {
  Writer w;
  w.CreateUnknown("a");
  w.Create("a", 2, 6);
  w.List({{2, Phase::kQueued, 6, "a"}, {1, Phase::kQueued, 5, "a"}});
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("made jobs/2 and jobs/1")));
}

TEST(Judge, ARepeatedSubmissionIsTheSameJob) {
  Writer w;
  w.CreateUnknown("a");
  w.Create("a", 1, 5);
  w.Create("a", 1, 5);
  EXPECT_THAT(w.Anomalies(), IsEmpty());
}

TEST(Judge, ACloneThatWasMadeIsNotRefusedWhenItIsRepeated) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kCancel, 1, Phase::kCancelled, 6);
  w.Add(Verb::kClone, 1, Answer::kMissing).request = "b";
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("jobs/1")));  // the original is there

  Writer repeated;
  repeated.Create("a", 1, 5);
  repeated.Do(Verb::kCancel, 1, Phase::kCancelled, 6);
  Operation& made = repeated.Add(Verb::kClone, 1, Answer::kDone);
  made.request = "b";
  made.seen = {{2, Phase::kQueued, 7, "b"}};
  repeated.Add(Verb::kDelete, 1, Answer::kDone);
  EXPECT_THAT(repeated.Anomalies(), IsEmpty());
  repeated.Add(Verb::kClone, 1, Answer::kMissing).request = "b";
  EXPECT_THAT(repeated.Anomalies(), Contains(HasSubstr("jobs/2")));
}

TEST(Judge, AJobThatNobodySubmittedIsFound) {
  Writer w;
  w.List({{1, Phase::kQueued, 5, "z"}});
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("nobody submitted")));
}

TEST(Judge, AStaleReadIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 6);
  w.Get(1, Phase::kQueued, 5);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

// Each job by itself could be explained: only the revisions tell.
TEST(Judge, AStaleReadOfAnotherJobIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Create("b", 2, 6);
  const int64_t call = w.history().back().end;
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 7);
  w.Do(Verb::kSuspend, 2, Phase::kSuspended, 8).call = call;
  w.Get(1, Phase::kQueued, 5);
  History history = w.history();
  for (Operation& operation : history) {
    if (operation.verb == Verb::kSuspend && operation.job == 1) operation.end = 1000;
  }
  EXPECT_THAT(Judge(history).anomalies, Contains(HasSubstr("changed at revision 7")));
}

TEST(Judge, AListOfTwoTimesIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Create("b", 2, 6);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 7);
  w.Do(Verb::kSuspend, 2, Phase::kSuspended, 8);
  Operation& list = w.List({{2, Phase::kSuspended, 8, "b"}, {1, Phase::kQueued, 5, "a"}});
  list.call = 4;  // it overlaps everything after the submissions
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("as of revision 8")));
}

TEST(Judge, AnAcknowledgementBeforeTheEffectIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kCancel, 1, Phase::kQueued, 5);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AReorderedCancelIsFound) {
  Writer w;
  w.Create("a", 1, 5, /*runs=*/true);
  w.Do(Verb::kCancel, 1, Phase::kCancelled, 6);
  w.Do(Verb::kResume, 1, Phase::kQueued, 7);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AnEffectThatIsUndoneIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 6);
  w.Get(1, Phase::kQueued, 7);  // nobody has resumed it
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AVerbThatTakesEffectTwiceIsFound) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 6);
  w.Do(Verb::kResume, 1, Phase::kQueued, 7);
  w.Get(1, Phase::kSuspended, 8);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, ABrokenVerbMayHaveHappenedOnceAtAnyTime) {
  Writer w;
  w.Create("a", 1, 5);
  w.Add(Verb::kSuspend, 1, Answer::kUnknown);
  w.Get(1, Phase::kQueued, 5);
  w.Get(1, Phase::kSuspended, 6);
  w.Do(Verb::kResume, 1, Phase::kQueued, 7);
  EXPECT_THAT(w.Anomalies(), IsEmpty());
  w.Get(1, Phase::kSuspended, 8);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AJobThatRunsChangesByItself) {
  Writer w;
  w.Create("a", 1, 5, /*runs=*/true);
  w.Get(1, Phase::kStarting, 6);
  w.Do(Verb::kSuspend, 1, Phase::kStoppingToSuspend, 7);
  w.Get(1, Phase::kSucceeded, 8);
  w.Add(Verb::kResume, 1, Answer::kRefused);
  EXPECT_THAT(w.Anomalies(), IsEmpty());
  w.Get(1, Phase::kRunning, 9);  // an end is final
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AJobThatCannotRunDoesNotChangeByItself) {
  Writer w;
  w.Create("a", 1, 5);
  w.Get(1, Phase::kQueued, 6);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, ADeletedJobStaysAway) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kCancel, 1, Phase::kCancelled, 6);
  w.Add(Verb::kDelete, 1, Answer::kDone);
  EXPECT_THAT(w.Anomalies(), IsEmpty());
  w.Get(1, Phase::kCancelled, 6);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("no order")));
}

TEST(Judge, AWatchShowsStatesInTheirOrder) {
  Writer w;
  w.Create("a", 1, 5);
  w.Do(Verb::kSuspend, 1, Phase::kSuspended, 6);
  const auto watched = [](Phase phase, int64_t revision, int64_t end) {
    Operation operation;
    operation.verb = Verb::kWatched;
    operation.call = 0;
    operation.end = end;
    operation.answer = Answer::kDone;
    operation.stream = 1;
    operation.seen = {{1, phase, revision, "a"}};
    return operation;
  };
  History right = w.history();
  right.push_back(watched(Phase::kQueued, 5, 90));  // a message may be late
  right.push_back(watched(Phase::kSuspended, 6, 91));
  EXPECT_THAT(Judge(right).anomalies, IsEmpty());
  History wrong = w.history();
  wrong.push_back(watched(Phase::kSuspended, 6, 90));
  wrong.push_back(watched(Phase::kQueued, 5, 91));
  EXPECT_THAT(Judge(wrong).anomalies, Contains(HasSubstr("no order")));
}

TEST(Judge, NumbersGrowWithTime) {
  Writer w;
  w.Create("b", 2, 5);
  w.Create("a", 1, 6);
  EXPECT_THAT(w.Anomalies(), Contains(HasSubstr("numbers went back")));
}

TEST(Judge, ASearchThatTakesTooLongIsSaidToProveNothing) {
  Writer w;
  w.Create("a", 1, 5, /*runs=*/true);
  for (int i = 0; i < 20; ++i) w.Add(Verb::kSuspend, 1, Answer::kUnknown);
  for (int i = 0; i < 20; ++i) w.Add(Verb::kResume, 1, Answer::kUnknown);
  w.Get(1, Phase::kAbsent, 3);
  const Judgement judgement = Judge(w.history(), /*steps_max=*/10);
  ASSERT_EQ(judgement.undecided.size(), 1u);
  EXPECT_THAT(judgement.undecided[0], HasSubstr("proves nothing"));
}

}  // namespace
}  // namespace trainyard::linearizability
