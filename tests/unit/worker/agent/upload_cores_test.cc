// Tests what the uploaders decide: which checkpoint is next, and where a log continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "worker/agent/checkpoint_queue.h"
#include "worker/agent/stream_cursor.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kId{{12}, 1};

class ConstantRng : public Rng {
 public:
  uint64_t Next() override { return 0; }
};

class CheckpointQueueTest : public ::testing::Test {
 protected:
  static UploadTarget Target(std::vector<int64_t> checkpoints, bool exited = false) {
    UploadTarget target;
    target.id = kId;
    target.checkpoints = std::move(checkpoints);
    target.exited = exited;
    return target;
  }
  // The step that is next; 0 for none.
  int64_t Next() const {
    const auto upload = queue_.Next();
    return upload.has_value() ? upload->step : 0;
  }

  ConstantRng rng_;
  CheckpointQueue queue_{rng_};
};

TEST_F(CheckpointQueueTest, SendsTheOldestFirstAndEachOnce) {
  EXPECT_TRUE(queue_.SetTargets({Target({10, 20})}));
  EXPECT_FALSE(queue_.SetTargets({Target({10, 20})}));
  EXPECT_EQ(Next(), 10);
  EXPECT_FALSE(queue_.Ended(kId, 10, absl::OkStatus()).has_value());
  EXPECT_EQ(Next(), 20);
  EXPECT_FALSE(queue_.Ended(kId, 20, absl::OkStatus()).has_value());
  EXPECT_EQ(Next(), 0);
  EXPECT_THAT(queue_.ProgressOf(kId).committed, ::testing::ElementsAre(10, 20));
  EXPECT_FALSE(queue_.ProgressOf(kId).done);
}

TEST_F(CheckpointQueueTest, AnExitedAttemptIsDoneOnceNothingIsLeftToSend) {
  queue_.SetTargets({Target({10}, true)});
  EXPECT_FALSE(queue_.ProgressOf(kId).done);
  (void)queue_.Ended(kId, 10, absl::OkStatus());
  EXPECT_TRUE(queue_.ProgressOf(kId).done);
}

TEST_F(CheckpointQueueTest, AServerThatIsAwayCostsAPauseAndNoCheckpoint) {
  queue_.SetTargets({Target({10}, true)});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(queue_.Ended(kId, 10, absl::UnavailableError("away")).has_value());
    EXPECT_EQ(Next(), 10);
  }
  EXPECT_THAT(queue_.ProgressOf(kId).committed, ::testing::IsEmpty());
}

TEST_F(CheckpointQueueTest, GivesUpWhatIsRefusedAndWhatIsDamagedAgainAndAgain) {
  queue_.SetTargets({Target({10, 20}, true)});
  EXPECT_FALSE(queue_.Ended(kId, 10, absl::AbortedError("stale")).has_value());
  EXPECT_EQ(Next(), 20);
  EXPECT_TRUE(queue_.Ended(kId, 20, absl::DataLossError("bits")).has_value());
  EXPECT_TRUE(queue_.Ended(kId, 20, absl::DataLossError("bits")).has_value());
  EXPECT_FALSE(queue_.Ended(kId, 20, absl::DataLossError("bits")).has_value());
  EXPECT_TRUE(queue_.ProgressOf(kId).done);
  EXPECT_THAT(queue_.ProgressOf(kId).committed, ::testing::IsEmpty());
}

TEST_F(CheckpointQueueTest, TheEndOfAnUploadOfWhatIsNoLongerListedIsForgotten) {
  queue_.SetTargets({Target({10})});
  queue_.SetTargets({});
  EXPECT_FALSE(queue_.Ended(kId, 10, absl::OkStatus()).has_value());
  EXPECT_THAT(queue_.ProgressOf(kId).committed, ::testing::IsEmpty());
}

TEST(StreamCursor, AsksFirstAndGoesOnWhereTheServerStands) {
  StreamCursor cursor;
  EXPECT_FALSE(cursor.is_known());
  EXPECT_EQ(cursor.offset(), 0);
  EXPECT_EQ(cursor.Failed(error::OffsetMismatch("log", 0, 70)), StreamCursor::Next::kMore);
  EXPECT_TRUE(cursor.is_known());
  EXPECT_EQ(cursor.offset(), 70);
  EXPECT_EQ(cursor.Acknowledged(90), StreamCursor::Next::kMore);
  // The server has lost some.
  EXPECT_EQ(cursor.Failed(error::OffsetMismatch("log", 90, 80)), StreamCursor::Next::kMore);
  EXPECT_EQ(cursor.offset(), 80);
}

TEST(StreamCursor, AServerThatTakesNothingIsNotAskedInALoop) {
  StreamCursor cursor;
  EXPECT_EQ(cursor.Acknowledged(0), StreamCursor::Next::kMore);
  EXPECT_EQ(cursor.Acknowledged(0), StreamCursor::Next::kFailed);
  EXPECT_EQ(cursor.Failed(error::OffsetMismatch("log", 0, 0)), StreamCursor::Next::kFailed);
  EXPECT_FALSE(cursor.is_closed());
}

TEST(StreamCursor, OnlyARefusalEndsIt) {
  StreamCursor cursor;
  EXPECT_EQ(cursor.Failed(absl::UnavailableError("away")), StreamCursor::Next::kFailed);
  EXPECT_EQ(cursor.Failed(error::UnknownSession("s")), StreamCursor::Next::kFailed);
  EXPECT_FALSE(cursor.is_closed());
  EXPECT_EQ(cursor.Failed(absl::AbortedError("stale")), StreamCursor::Next::kAtEnd);
  EXPECT_TRUE(cursor.is_closed());
}

}  // namespace
}  // namespace trainyard::agent
