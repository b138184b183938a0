// Tests the file of metrics: what a question costs, what damage costs, and how old files are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/store/memory_metrics_store.h"
#include "server/store/sqlite/append_journal.h"
#include "server/store/sqlite/connection_pool.h"
#include "server/store/sqlite/metric_rows.h"
#include "server/store/sqlite/point_blob.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using ::testing::ElementsAre;

constexpr AttemptId kAttempt{JobId{1}, 1};
constexpr int64_t kBytesOfPoint = 10;

class MetricsFileTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.File("metrics.db"); }
  std::string journal() const { return path() + "-committed"; }

  std::unique_ptr<SqliteMetricsStore> Open() {
    auto store = SqliteMetricsStore::Open(path());
    TY_CHECK_OK(store.status());
    return *std::move(store);
  }

  // Appends the points of steps [from, to): train.loss at each, test.accuracy after each hundred.
  static void Append(MetricsStore& store, int64_t from, int64_t to) {
    constexpr int64_t kChunk = 500;
    for (int64_t begin = from; begin < to; begin += kChunk) {
      std::vector<MetricPoint> points;
      for (int64_t step = begin; step < std::min(begin + kChunk, to); ++step) {
        points.push_back({step, "train.loss", 1.0, step});
        if (step % 100 == 99) points.push_back({step, "test.accuracy", 0.5, step});
      }
      const auto offset = store.ReadOffset(kAttempt, 0);
      TY_CHECK_OK(offset.status());
      const auto size = static_cast<int64_t>(points.size()) * kBytesOfPoint;
      TY_CHECK_OK(store.AppendPoints(kAttempt, 0, *offset, points, *offset + size).status());
    }
  }

  // Returns what SQLite runs for a call.
  template <typename Call>
  static int64_t Instructions(const SqliteMetricsStore& store, Call call) {
    const int64_t before = store.read_instructions();
    call();
    return store.read_instructions() - before;
  }

  trainyard::testing::TempDir directory_;
};

// The job has 50,500 points. SQLite runs some ten instructions for each that it looks at.
TEST_F(MetricsFileTest, AQuestionCostsWhatItIsAbout) {
  constexpr int64_t kSteps = 50'000;
  const auto store = Open();
  Append(*store, 0, kSteps);
  const auto cost_of_query = [&](const std::string& name, int64_t max_points) {
    return Instructions(*store, [&] {
      ASSERT_TRUE(store->Query(JobId{1}, {name}, {.max_points = max_points}).ok());
    });
  };
  EXPECT_LT(cost_of_query("no.such", 10), 100);
  EXPECT_LT(Instructions(*store, [&] { EXPECT_EQ(*store->CountPoints(JobId{1}), 50'500); }),
            10 * kUnpackedMax);
  EXPECT_LT(Instructions(*store,
                         [&] {
                           const auto page = store->ReadAfter(JobId{1}, {}, 50'400, 1000);
                           ASSERT_TRUE(page.ok());
                           EXPECT_EQ(page->points.size(), 100u);
                         }),
            5000);
  // Each question looks at the points that are not packed yet, and at rows of chunks.
  constexpr int64_t kUnpackedCost = 25 * kUnpackedMax;
  EXPECT_LT(cost_of_query("test.accuracy", 0), kUnpackedCost);
  EXPECT_LT(cost_of_query("train.loss", 10), kUnpackedCost + 30 * kSteps / kChunkPoints);
}

TEST_F(MetricsFileTest, ReadersAndTheWriterDoNotWaitForEachOther) {
  const auto store = Open();
  Append(*store, 0, 1000);
  const auto pool = ConnectionPool::Open(path(), kMetricReadersMax);
  ASSERT_TRUE(pool.ok()) << pool.status();
  std::vector<std::unique_ptr<ConnectionPool::Reader>> readers;
  for (int i = 0; i < kMetricReadersMax; ++i) {
    auto reader = (*pool)->Take();
    ASSERT_TRUE(reader.ok()) << reader.status();
    ASSERT_EQ(ReadMetricJob(***reader, JobId{1})->job, JobId{1});
    readers.push_back(*std::move(reader));
    Append(*store, 1000 * (i + 1), 1000 * (i + 2));
  }
}

TEST_F(MetricsFileTest, PackedPointsComeBack) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  const std::vector<PackedPoint> points = {{1, 0, 0.1, 1'790'000'000'000'000},
                                           {5, kHighest, -0.0, kLowest},
                                           {kHighest, kLowest, 1e300, kHighest}};
  const std::string bytes = EncodePoints(points);
  EXPECT_EQ(DecodePoints(bytes), points);
  EXPECT_EQ(DecodePoints(""), std::vector<PackedPoint>());
  EXPECT_FALSE(DecodePoints(bytes.substr(0, bytes.size() - 1)).has_value());
  EXPECT_FALSE(DecodePoints(std::string(20, '\xff')).has_value());
}

TEST_F(MetricsFileTest, DamagedPointsAreNoticed) {
  const auto store = Open();
  Append(*store, 0, 3000);
  {
    const auto db = Database::Open(path(), Database::Mode::kRelaxed);
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE((*db)->Execute("UPDATE packed_points SET points = x'0102' WHERE id = 3").ok());
  }
  const absl::Status status = store->Query(JobId{1}, {}, {}).status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE") << status;
}

// tests/data/store/metrics_v1.db was written by the last server of version 1. jobs/1 has 3,000
// points of attempt 1, and 500 of an attempt that resumed 200 steps before; jobs/2 has 100.
TEST_F(MetricsFileTest, AFileOfVersion1OpensAndKeepsEverything) {
  const auto kept = ReadFile(testing::SourcePath("tests/data/store/metrics_v1.db"));
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_TRUE(WriteFileAtomically(path(), *kept).ok());
  MemoryMetricsStore expected;
  {
    const auto db = Database::Open(path(), Database::Mode::kRelaxed);
    ASSERT_TRUE(db.ok());
    Statement& rows = (*db)->Prepared(
        "SELECT job, attempt, step, metric_names.name, value, time_us FROM points "
        "JOIN metric_names ON metric_names.id = points.name ORDER BY job, cursor");
    while (*rows.Step()) {
      const AttemptId attempt{JobId{rows.Int(0)}, rows.Int32(1)};
      const int64_t offset = *expected.ReadOffset(attempt, 0);
      const MetricPoint point{rows.Int(2), rows.Text(3), rows.Real(4), rows.Int(5)};
      ASSERT_TRUE(expected.AppendPoints(attempt, 0, offset, {point}, offset + 1).ok());
    }
  }
  for (const bool is_first : {true, false}) {
    const auto store = Open();
    for (const JobId job : {JobId{1}, JobId{2}}) {
      EXPECT_EQ(*store->CountPoints(job), *expected.CountPoints(job));
      EXPECT_EQ(*store->Query(job, {}, {}), *expected.Query(job, {}, {}));
      EXPECT_EQ(*store->Query(job, {"train.loss"}, {.max_points = 7}),
                *expected.Query(job, {"train.loss"}, {.max_points = 7}));
    }
    EXPECT_EQ(*store->ReadOffset(kAttempt, 0), 210'000);
    const auto page = store->ReadAfter(JobId{1}, {}, 0, 10);
    ASSERT_TRUE(page.ok());
    EXPECT_EQ(page->cursor, 10);
    EXPECT_EQ(page->points, expected.ReadAfter(JobId{1}, {}, 0, 10)->points);
    if (!is_first) continue;
    const MetricPoint more{5000, "train.loss", 1, 2};
    ASSERT_TRUE(store->AppendPoints({JobId{2}, 2}, 0, 0, {more}, 1).ok()) << "it goes on";
    ASSERT_TRUE(expected.AppendPoints({JobId{2}, 2}, 0, 0, {more}, 1).ok());
  }
}

// SQLite drops a damaged frame of the log, and all after it, without a word.
TEST_F(MetricsFileTest, EveryFlippedBitOfTheLogIsNoticedAndHealed) {
  const std::string wal = path() + "-wal";
  std::string log;
  std::string file;
  std::string committed;
  int64_t end = 0;
  {
    const auto store = Open();
    for (int64_t step = 0; step < 40; step += 10) Append(*store, step, step + 10);
    end = *store->ReadOffset(kAttempt, 0);
    // The files as a server that is killed leaves them.
    log = *ReadFile(wal);
    file = *ReadFile(path());
    committed = *ReadFile(journal());
  }
  constexpr size_t kTried = 40;
  size_t noticed = 0;
  for (size_t i = 0; i < kTried; ++i) {
    std::string damaged = log;
    const size_t byte = i * log.size() / kTried;
    damaged[byte] ^= '\x04';
    ASSERT_TRUE(WriteFileAtomically(path(), file).ok());
    ASSERT_TRUE(WriteFileAtomically(wal, damaged).ok());
    ASSERT_TRUE(WriteFileAtomically(journal(), committed).ok());
    (void)unlink((path() + "-shm").c_str());
    {
      const auto store = Open();
      if (store->lost().empty()) {
        EXPECT_EQ(*store->ReadOffset(kAttempt, 0), end) << "byte " << byte;
        continue;  // it was no part of the log any more
      }
      ++noticed;
      ASSERT_EQ(store->lost().size(), 1u);
      const LostPoints& lost = store->lost()[0];
      EXPECT_EQ(lost.attempt, kAttempt);
      EXPECT_EQ(*store->ReadOffset(kAttempt, 0), lost.offset);
      EXPECT_EQ(lost.offset + lost.points * kBytesOfPoint, end);
      const absl::Status status = store->AppendPoints(kAttempt, 0, end, {}, end).status();
      EXPECT_EQ(ErrorReason(status), "OFFSET_MISMATCH") << "the worker learns where to go back to";
      Append(*store, 40 - lost.points, 40);
      EXPECT_EQ(store->ReadAfter(JobId{1}, {}, end / kBytesOfPoint, 100)->points.size(),
                static_cast<size_t>(lost.points))
          << "no cursor is given out again, so those who follow see them";
    }
    EXPECT_TRUE(Open()->lost().empty()) << "it is told once";
  }
  EXPECT_GT(noticed, kTried / 2);
}

TEST_F(MetricsFileTest, WhatIsDeletedIsNotLost) {
  {
    const auto store = Open();
    Append(*store, 0, 10);
    ASSERT_TRUE(store->DeleteJob(JobId{1}).ok());
    // The journal as a server that is killed leaves it.
    const std::string committed = *ReadFile(journal());
    ASSERT_TRUE(WriteFileAtomically(directory_.File("kept"), committed).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(journal(), *ReadFile(directory_.File("kept"))).ok());
  EXPECT_TRUE(Open()->lost().empty());
}

TEST_F(MetricsFileTest, TheJournalIsEmptiedWhenNothingNeedsIt) {
  const auto store = Open();
  for (int64_t step = 0; step < 5000; ++step) Append(*store, step, step + 1);
  EXPECT_LE(*FileSize(journal()), AppendJournal::kFullBytes);
}

TEST_F(MetricsFileTest, ADamagedLineOfTheJournalIsLeftOut) {
  auto file = AppendJournal::Open(journal());
  ASSERT_TRUE(file.ok()) << file.status();
  const JournalEntry first{JournalEntry::Kind::kAppend, kAttempt, -1, 40, 4, 17};
  const JournalEntry second{JournalEntry::Kind::kDelete, {JobId{2}, 0}};
  file->Add(first);
  file->Add(second);
  EXPECT_THAT(*file->Read(), ElementsAre(first, second));
  std::string text = *ReadFile(journal());
  text[9] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(journal(), text).ok());
  EXPECT_THAT(*file->Read(), ElementsAre(second));
}

}  // namespace
}  // namespace trainyard::store
