// Tests that logs grow by offset and can be read while they grow.
#include "server/runtime/log_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/report_limits.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::runtime {
namespace {

class LogStoreTest : public ::testing::Test {
 protected:
  testing::TempDir dir_;
  LogStore logs_{dir_.File("logs")};
  const LogId log_ = {{JobId{12}, 1}, 3};
};

TEST_F(LogStoreTest, AppendsAndReadsByOffset) {
  EXPECT_EQ(*logs_.Size(log_), 0);
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "");
  EXPECT_EQ(*logs_.Append(log_, 0, "hello "), 6);
  EXPECT_EQ(*logs_.Append(log_, 6, "world"), 11);
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "hello world");
  EXPECT_EQ(*logs_.Read(log_, 6, 3), "wor");
  EXPECT_EQ(*logs_.Read(log_, 11, 3), "");
}

TEST_F(LogStoreTest, PassesOverBytesThatItHas) {
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  EXPECT_EQ(*logs_.Append(log_, 0, "hello"), 5);
  EXPECT_EQ(*logs_.Append(log_, 2, "llo world"), 11);
  EXPECT_EQ(*logs_.Append(log_, 0, "he"), 11);
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "hello world");
}

TEST_F(LogStoreTest, RefusesAGapAndTellsWhereToGoOn) {
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  const auto appended = logs_.Append(log_, 6, "world");
  EXPECT_EQ(ErrorReason(appended.status()), "OFFSET_MISMATCH");
  EXPECT_EQ(GetErrorMetadata(appended.status()).at(error::kExpectedOffset), "5");
  EXPECT_EQ(ErrorReason(logs_.Append(log_, -1, "x").status()), "OFFSET_MISMATCH");
}

TEST_F(LogStoreTest, AStreamEndsAtItsLimitAndALogSaysSo) {
  ASSERT_TRUE(logs_.Append(log_, 0, "x").ok());
  ASSERT_EQ(truncate(dir_.File("logs/12/1/3.log").c_str(), LogStore::kLogBytesMax - 5), 0);
  const auto refused = logs_.Append(log_, LogStore::kLogBytesMax - 5, "hello world");
  EXPECT_EQ(ErrorReason(refused.status()), kStreamFull) << refused.status();
  EXPECT_EQ(*logs_.Read(log_, LogStore::kLogBytesMax - 5, 1000),
            "hello\n==== this log has reached the limit of 256 MiB; the rest is not kept ====\n");
  const int64_t size = *logs_.Size(log_);
  // A worker that begins anew asks with nothing, and sends again what was refused.
  EXPECT_EQ(ErrorReason(logs_.Append(log_, 0, "").status()), kStreamFull);
  EXPECT_EQ(ErrorReason(logs_.Append(log_, LogStore::kLogBytesMax - 5, "hello world").status()),
            kStreamFull);
  EXPECT_EQ(*logs_.Size(log_), size);

  const LogId trace = {log_.attempt, log_.rank, RankStream::kTrace};
  ASSERT_TRUE(logs_.Append(trace, 0, "{}").ok());
  ASSERT_EQ(truncate(dir_.File("logs/12/1/3.trace").c_str(), LogStore::kTraceBytesMax - 1), 0);
  EXPECT_EQ(ErrorReason(logs_.Append(trace, LogStore::kTraceBytesMax - 1, "{}").status()),
            kStreamFull);
  EXPECT_EQ(*logs_.Size(trace), LogStore::kTraceBytesMax);
}

TEST_F(LogStoreTest, LogsAreKeptApartByNumbers) {
  ASSERT_TRUE(logs_.Append(log_, 0, "a").ok());
  ASSERT_TRUE(logs_.Append({{JobId{12}, 2}, 3}, 0, "b").ok());
  EXPECT_EQ(*ReadFile(dir_.File("logs/12/1/3.log")), "a");
  EXPECT_EQ(*ReadFile(dir_.File("logs/12/2/3.log")), "b");
}

TEST_F(LogStoreTest, TheTimelineLiesBesideTheLog) {
  const LogId trace = {log_.attempt, log_.rank, RankStream::kTrace};
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  EXPECT_EQ(*logs_.Append(trace, 0, "{}"), 2);
  EXPECT_EQ(*logs_.Size(log_), 5);
  EXPECT_EQ(*ReadFile(dir_.File("logs/12/1/3.trace")), "{}");
}

TEST_F(LogStoreTest, WhatAFailedWriteLeftIsPassedOver) {
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  // A process that died at this point had written a part of the next chunk.
  ASSERT_TRUE(ReplaceFile(dir_.File("logs/12/1/3.log"), "hello wo").ok());
  EXPECT_EQ(*logs_.Append(log_, 5, " world"), 11);
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "hello world");
}

TEST_F(LogStoreTest, AllStreamsOfAJobCanBeRemoved) {
  const LogId other = {{JobId{13}, 1}, 0};
  const LogId trace = {{JobId{12}, 2}, 0, RankStream::kTrace};
  EXPECT_EQ(*logs_.SizeOf(JobId{12}), 0);
  EXPECT_TRUE(logs_.ListJobs()->empty());
  EXPECT_TRUE(logs_.Remove(JobId{12}).ok()) << "there is nothing to remove";
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  ASSERT_TRUE(logs_.Append(trace, 0, "{}").ok());
  ASSERT_TRUE(logs_.Append(other, 0, "stays").ok());
  EXPECT_EQ(*logs_.SizeOf(JobId{12}), 7);
  EXPECT_EQ(logs_.ListJobs()->size(), 2u);

  ASSERT_TRUE(logs_.Remove(JobId{12}).ok());
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "");
  EXPECT_EQ(*logs_.SizeOf(JobId{12}), 0);
  EXPECT_EQ(*logs_.Read(other, 0, 100), "stays");
  EXPECT_EQ(*logs_.ListJobs(), std::vector<JobId>{JobId{13}});
}

TEST_F(LogStoreTest, AnAttemptCanBeMovedAside) {
  const LogId second = {{JobId{12}, 2}, 0};
  ASSERT_TRUE(logs_.Append(log_, 0, "hello").ok());
  ASSERT_TRUE(logs_.Append(second, 0, "stays").ok());
  const std::vector<AttemptId> both = *logs_.ListAttempts(JobId{12});
  EXPECT_EQ(std::set<AttemptId>(both.begin(), both.end()),
            (std::set<AttemptId>{log_.attempt, second.attempt}));

  ASSERT_TRUE(logs_.SetAside(log_.attempt, dir_.File("aside")).ok());
  EXPECT_EQ(*ReadFile(dir_.File("aside/12/1/3.log")), "hello");
  EXPECT_EQ(*logs_.Read(log_, 0, 100), "");
  EXPECT_EQ(*logs_.ListAttempts(JobId{12}), std::vector<AttemptId>{second.attempt});

  ASSERT_TRUE(logs_.SetAside(second.attempt, dir_.File("aside")).ok());
  EXPECT_TRUE(logs_.ListJobs()->empty());
  EXPECT_FALSE(logs_.SetAside(second.attempt, dir_.File("aside")).ok()) << "there is nothing";
}

}  // namespace
}  // namespace trainyard::runtime
