// Tests the order of a turn, without a thread: which decisions it makes, when they may be answered,
// and what happens if the commit fails.
#include "server/runtime/turn_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "common/base/errors.h"
#include "server/store/memory_store.h"
#include "tests/unit/server/runtime/inputs.h"

namespace trainyard::runtime {
namespace {

using testing::RegisterWorker;
using testing::SubmitJob;

class TurnLoopTest : public ::testing::Test {
 protected:
  TurnLoopTest() : loop_(core::Config(), absl::Seconds(1), *store_.Load(), Now()) {}

  core::Now Now() const { return {1'000'000 + uptime_us_, uptime_us_}; }

  TurnItem Post(core::Input input) {
    return PostItem{std::move(input), [this](const absl::StatusOr<core::Reply>& reply) {
                      posted_.push_back(reply.status());
                    }};
  }
  TurnItem Sync(int64_t sequence, int64_t revision, absl::Duration max_wait) {
    core::SyncReport report;
    report.session = "s1";
    report.sequence = sequence;
    report.desired_revision = revision;
    return SyncItem{report, max_wait, [this](absl::StatusOr<DesiredState> desired) {
                      synced_.push_back(std::move(desired));
                    }};
  }
  std::vector<TurnItem> Items() { return {}; }
  template <typename... Rest>
  std::vector<TurnItem> Items(TurnItem first, Rest... rest) {
    std::vector<TurnItem> items = Items(std::move(rest)...);
    items.insert(items.begin(), std::move(first));
    return items;
  }

  static void Give(const std::vector<TurnLoop::Answer>& answers) {
    for (const TurnLoop::Answer& answer : answers) answer();
  }
  // Makes a whole turn.
  void Turn(std::vector<TurnItem> items) {
    const core::Turn* turn = loop_.Take(std::move(items), Now());
    if (turn != nullptr && !turn->delta.empty()) {
      ASSERT_TRUE(store_.Commit(turn->delta).ok());
    }
    Give(loop_.Committed());
  }

  store::MemoryStore store_;
  int64_t uptime_us_ = 100'000'000;
  TurnLoop loop_;
  std::vector<absl::Status> posted_;
  std::vector<absl::StatusOr<DesiredState>> synced_;
};

TEST_F(TurnLoopTest, NothingIsAnsweredBeforeTheTurnHasEnded) {
  const core::Turn* turn = loop_.Take(Items(Post(SubmitJob("a")), Post(SubmitJob("b"))), Now());
  ASSERT_NE(turn, nullptr);
  EXPECT_EQ(turn->delta.jobs.size(), 2u);
  EXPECT_THAT(posted_, ::testing::IsEmpty());
  const auto answers = loop_.Committed();
  EXPECT_THAT(posted_, ::testing::IsEmpty());
  Give(answers);
  EXPECT_THAT(posted_, ::testing::ElementsAre(absl::OkStatus(), absl::OkStatus()));
}

TEST_F(TurnLoopTest, ATurnWithoutInputsDecidesNothingUntilATimerIsDue) {
  EXPECT_EQ(loop_.Take({}, Now()), nullptr);
  Give(loop_.Committed());
  Turn(Items(Post(RegisterWorker("s1"))));
  ASSERT_TRUE(loop_.NextDeadline().has_value());
  uptime_us_ = *loop_.NextDeadline();
  EXPECT_NE(loop_.Take({}, Now()), nullptr);
}

TEST_F(TurnLoopTest, ATurnThatFoundNoSpaceLeavesTheYardAsTheStoreHasIt) {
  Turn(Items(Post(SubmitJob("kept"))));
  posted_.clear();
  ASSERT_NE(
      loop_.Take(Items(Post(SubmitJob("lost")), Post(core::CancelJob{JobId{77}, "user:anna", ""})),
                 Now()),
      nullptr);
  Give(loop_.OutOfSpace(error::DiskFull("/state"), *store_.Load()));
  ASSERT_EQ(posted_.size(), 2u);
  EXPECT_EQ(ErrorReason(posted_[0]), "DISK_FULL");
  // A refusal by the yard remains a refusal even if the commit fails.
  EXPECT_TRUE(absl::IsNotFound(posted_[1]));
  EXPECT_EQ(loop_.yard().snapshot().jobs.size(), 1u);
  Turn(Items(Post(SubmitJob("after"))));
  EXPECT_TRUE(posted_.back().ok());
  EXPECT_EQ(loop_.yard().snapshot().jobs.size(), 2u);
}

TEST_F(TurnLoopTest, AfterAFullDiskTimersRest) {
  Turn(Items(Post(RegisterWorker("s1"))));
  uptime_us_ = *loop_.NextDeadline();
  ASSERT_NE(loop_.Take({}, Now()), nullptr);
  Give(loop_.OutOfSpace(error::DiskFull("/state"), *store_.Load()));
  if (loop_.NextDeadline().has_value()) {
    EXPECT_GE(*loop_.NextDeadline(), uptime_us_ + 1'000'000);
  }
  EXPECT_EQ(loop_.Take({}, Now()), nullptr);
  Give(loop_.Committed());
}

TEST_F(TurnLoopTest, AWorkerWithoutNewsWaitsAndIsAnsweredWithTheTurnThatHasSome) {
  Turn(Items(Post(RegisterWorker("s1"))));
  Turn(Items(Sync(1, 0, absl::Seconds(5))));
  ASSERT_EQ(synced_.size(), 1u);
  Turn(Items(Sync(2, synced_[0]->revision, absl::Seconds(5))));
  ASSERT_EQ(synced_.size(), 1u);
  const core::Turn* turn = loop_.Take(Items(Post(SubmitJob("a"))), Now());
  ASSERT_NE(turn, nullptr);
  EXPECT_EQ(synced_.size(), 1u);
  ASSERT_TRUE(store_.Commit(turn->delta).ok());
  Give(loop_.Committed());
  ASSERT_EQ(synced_.size(), 2u);
  ASSERT_TRUE(synced_[1].ok());
  EXPECT_EQ(synced_[1]->attempts.size(), 1u);
}

TEST_F(TurnLoopTest, AWaitingWorkerIsAnsweredWhenItsTimeIsOver) {
  Turn(Items(Post(RegisterWorker("s1"))));
  Turn(Items(Sync(1, 0, absl::Seconds(5))));
  Turn(Items(Sync(2, synced_[0]->revision, absl::Seconds(5))));
  ASSERT_TRUE(loop_.NextDeadline().has_value());
  EXPECT_LE(*loop_.NextDeadline(), uptime_us_ + 5'000'000);
  uptime_us_ += 5'000'000;
  Turn({});
  EXPECT_EQ(synced_.size(), 2u);
}

TEST_F(TurnLoopTest, AtTheEndThoseWhoWaitAreTold) {
  Turn(Items(Post(RegisterWorker("s1"))));
  Turn(Items(Sync(1, 0, absl::Seconds(5))));
  Turn(Items(Sync(2, synced_[0]->revision, absl::Seconds(5))));
  Give(loop_.EndWaiting(absl::UnavailableError("the end")));
  ASSERT_EQ(synced_.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(synced_[1].status()));
}

}  // namespace
}  // namespace trainyard::runtime
