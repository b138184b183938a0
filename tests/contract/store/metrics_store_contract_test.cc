// Tests what every metrics store promises, with the same cases for memory and SQLite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/store/memory_metrics_store.h"
#include "server/store/sqlite/sqlite_metrics_store.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::store {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

enum class Kind { kMemory, kSqlite };

MetricPoint Point(int64_t step, const std::string& name, double value) {
  return {step, name, value, 1'790'000'000'000'000 + step};
}

class MetricsStoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  MetricsStoreContract() { Open(); }

  void Open() {
    if (GetParam() == Kind::kMemory) {
      store_ = std::make_unique<MemoryMetricsStore>();
      return;
    }
    auto store = OpenSqliteMetricsStore(directory_.File("metrics.db"));
    TY_CHECK_OK(store.status());
    store_ = *std::move(store);
  }

  // A store in memory forgets, so only files are opened again.
  void Reopen() {
    if (GetParam() == Kind::kMemory) return;
    store_ = nullptr;
    Open();
  }

  // Appends at the store's present offset.
  void Append(int32_t attempt, const std::vector<MetricPoint>& points, int32_t rank = 0) {
    const auto offset = store_->ReadOffset({JobId{1}, attempt}, rank);
    TY_CHECK_OK(offset.status());
    const auto size = static_cast<int64_t>(points.size()) * 10;
    const auto next =
        store_->AppendPoints({JobId{1}, attempt}, rank, *offset, points, *offset + size);
    TY_CHECK_OK(next.status());
    EXPECT_EQ(*next, *offset + size);
  }

  // Returns "step:value@attempt" for each point of a series.
  std::vector<std::string> Series(const std::string& name) {
    const auto series = store_->Query(JobId{1}, {name}, {});
    TY_CHECK_OK(series.status());
    std::vector<std::string> texts;
    for (const auto& [found, points] : *series) {
      EXPECT_EQ(found, name);
      for (const StoredPoint& stored : points) {
        texts.push_back(
            absl::StrCat(stored.point.step, ":", stored.point.value, "@", stored.attempt));
      }
    }
    return texts;
  }

  trainyard::testing::TempDir directory_;
  std::unique_ptr<MetricsStore> store_;
};

TEST_P(MetricsStoreContract, PointsComeBack) {
  const MetricPoint points[] = {Point(1, "train.loss", 2.5), Point(1, "lr", 0.1),
                                Point(2, "train.loss", std::numeric_limits<double>::quiet_NaN()),
                                Point(3, "train.loss", -std::numeric_limits<double>::infinity())};
  Append(1, {points[0], points[1], points[2], points[3]});
  Reopen();
  const auto series = store_->Query(JobId{1}, {}, {});
  ASSERT_TRUE(series.ok());
  EXPECT_THAT(*series, ElementsAre(Pair("lr", ElementsAre(StoredPoint{points[1], 1})),
                                   Pair("train.loss", ElementsAre(StoredPoint{points[0], 1},
                                                                  StoredPoint{points[2], 1},
                                                                  StoredPoint{points[3], 1}))));
  EXPECT_TRUE(store_->Query(JobId{2}, {}, {})->empty());
  EXPECT_TRUE(store_->Query(JobId{1}, {"no.such"}, {})->empty());
}

TEST_P(MetricsStoreContract, EachPointExactlyOnceByOffset) {
  const AttemptId attempt{JobId{1}, 1};
  const std::vector<MetricPoint> points = {Point(1, "train.loss", 2.5)};
  ASSERT_TRUE(store_->AppendPoints(attempt, 0, 0, points, 40).ok());
  const auto again = store_->AppendPoints(attempt, 0, 0, points, 40);
  EXPECT_EQ(ErrorReason(again.status()), "OFFSET_MISMATCH");
  EXPECT_NE(again.status().message().find("expected 40"), absl::string_view::npos)
      << again.status();
  EXPECT_EQ(ErrorReason(store_->AppendPoints(attempt, 0, 50, points, 90).status()),
            "OFFSET_MISMATCH");
  EXPECT_EQ(store_->AppendPoints(attempt, 0, 40, {}, 30).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Series("train.loss"), ElementsAre("1:2.5@1"));
  Reopen();
  EXPECT_EQ(*store_->ReadOffset(attempt, 0), 40);
  EXPECT_EQ(*store_->AppendPoints(attempt, 0, 40, {Point(2, "train.loss", 2)}, 80), 80);
}

TEST_P(MetricsStoreContract, RanksAndAttemptsHaveOffsetsOfTheirOwn) {
  Append(1, {Point(1, "train.loss", 1)}, 0);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 1}, 0), 10);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 1}, 1), 0);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 2}, 0), 0);
  EXPECT_EQ(*store_->ReadOffset({JobId{2}, 1}, 0), 0);
}

TEST_P(MetricsStoreContract, TheDeviceOfARankHasAnOffsetOfItsOwn) {
  Append(1, {Point(1, "train.loss", 1)}, 0);
  Append(1, {Point(1, "gpu.power_watts", 300)}, DeviceStreamOf(0));
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 1}, DeviceStreamOf(0)), 10);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 1}, DeviceStreamOf(1)), 0);
  EXPECT_THAT(Series("gpu.power_watts"), ElementsAre("1:300@1"));
  const auto gap = store_->AppendPoints({JobId{1}, 1}, DeviceStreamOf(0), 50, {}, 90);
  EXPECT_NE(gap.status().message().find("rank 0 device metrics"), absl::string_view::npos)
      << gap.status();
}

TEST_P(MetricsStoreContract, AnEmptyChunkMovesTheOffsetOnly) {
  ASSERT_TRUE(store_->AppendPoints({JobId{1}, 1}, 0, 0, {}, 25).ok());
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 1}, 0), 25);
  EXPECT_TRUE(store_->Query(JobId{1}, {}, {})->empty());
}

TEST_P(MetricsStoreContract, AnAttemptThatResumesUndoesWhatCameAfter) {
  Append(1, {Point(1, "train.loss", 1), Point(2, "train.loss", 2), Point(3, "train.loss", 3),
             Point(4, "train.loss", 4), Point(2, "test.accuracy", 0.5)});
  Append(2, {Point(3, "train.loss", 30)});  // from the checkpoint at step 2
  EXPECT_THAT(Series("train.loss"), ElementsAre("1:1@1", "2:2@1", "3:30@2"));
  EXPECT_THAT(Series("test.accuracy"), ElementsAre("2:0.5@1"));
  Append(3, {Point(2, "train.loss", 200)});
  EXPECT_THAT(Series("train.loss"), ElementsAre("1:1@1", "2:200@3"));
  // A late line of an old attempt changes nothing.
  Append(1, {Point(5, "train.loss", 5)});
  EXPECT_THAT(Series("train.loss"), ElementsAre("1:1@1", "2:200@3"));
}

TEST_P(MetricsStoreContract, SeriesAscendWhateverTheOrderOfArrival) {
  Append(1, {Point(3, "lr", 3), Point(1, "lr", 1), Point(2, "lr", 2), Point(1, "lr", 1.5)});
  EXPECT_THAT(Series("lr"), ElementsAre("1:1.5@1", "2:2@1", "3:3@1"));
}

TEST_P(MetricsStoreContract, AJobCanBeForgotten) {
  Append(1, {Point(1, "lr", 1), Point(2, "lr", 2)});
  Append(2, {Point(3, "lr", 3)});
  ASSERT_TRUE(store_->AppendPoints({JobId{2}, 1}, 0, 0, {Point(1, "lr", 9)}, 10).ok());
  EXPECT_EQ(*store_->CountPoints(JobId{1}), 3);
  EXPECT_EQ(*store_->CountPoints(JobId{3}), 0);
  EXPECT_EQ(*store_->SizeOf(JobId{3}), 0);
  EXPECT_GT(*store_->SizeOf(JobId{1}), *store_->SizeOf(JobId{2}));
  EXPECT_THAT(*store_->ListAttempts(),
              ElementsAre(AttemptId{JobId{1}, 1}, AttemptId{JobId{1}, 2}, AttemptId{JobId{2}, 1}));

  ASSERT_TRUE(store_->DeleteJob(JobId{1}).ok());
  ASSERT_TRUE(store_->DeleteJob(JobId{1}).ok()) << "again is fine";
  Reopen();
  EXPECT_EQ(*store_->CountPoints(JobId{1}), 0);
  EXPECT_EQ(*store_->SizeOf(JobId{1}), 0);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 2}, 0), 0);
  EXPECT_THAT(*store_->ListAttempts(), ElementsAre(AttemptId{JobId{2}, 1}));
  EXPECT_EQ(*store_->CountPoints(JobId{2}), 1) << "other jobs keep theirs";
}

TEST_P(MetricsStoreContract, AnAttemptThatIsDeletedLeavesTheOthers) {
  Append(1, {Point(1, "lr", 1), Point(2, "lr", 2)});
  Append(2, {Point(3, "lr", 3)});
  ASSERT_TRUE(store_->DeleteAttempt({JobId{1}, 2}).ok());
  ASSERT_TRUE(store_->DeleteAttempt({JobId{1}, 2}).ok()) << "again is fine";
  Reopen();
  EXPECT_EQ(*store_->CountPoints(JobId{1}), 2);
  EXPECT_EQ(*store_->ReadOffset({JobId{1}, 2}, 0), 0);
  EXPECT_THAT(*store_->ListAttempts(), ElementsAre(AttemptId{JobId{1}, 1}));
  Append(2, {Point(3, "lr", 4)});
  EXPECT_EQ(*store_->CountPoints(JobId{1}), 3);
}

TEST_P(MetricsStoreContract, WatchersReadInOrderOfArrival) {
  Append(1, {Point(1, "lr", 1), Point(1, "train.loss", 2), Point(2, "lr", 3)});
  auto page = store_->ReadAfter(JobId{1}, {}, 0, 2);
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->points.size(), 2u);
  EXPECT_EQ(page->points[0], (StoredPoint{Point(1, "lr", 1), 1}));
  EXPECT_EQ(page->points[1], (StoredPoint{Point(1, "train.loss", 2), 1}));
  const int64_t cursor = page->cursor;
  page = store_->ReadAfter(JobId{1}, {}, cursor, 10);
  ASSERT_EQ(page->points.size(), 1u);
  EXPECT_EQ(page->points[0].point.value, 3);
  const int64_t end = page->cursor;
  EXPECT_GT(end, cursor);
  page = store_->ReadAfter(JobId{1}, {}, end, 10);
  EXPECT_TRUE(page->points.empty());
  EXPECT_EQ(page->cursor, end);
  Append(2, {Point(9, "lr", 9)});
  Reopen();
  page = store_->ReadAfter(JobId{1}, {}, end, 10);
  if (GetParam() == Kind::kSqlite) {
    ASSERT_EQ(page->points.size(), 1u);
    EXPECT_EQ(page->points[0].attempt, 2);
  }
}

TEST_P(MetricsStoreContract, WatchersMayReadSomeMetricsOnly) {
  Append(1, {Point(1, "lr", 1), Point(1, "train.loss", 2), Point(2, "lr", 3)});
  const auto page = store_->ReadAfter(JobId{1}, {"no.such", "lr"}, 0, 1);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->points, ElementsAre(StoredPoint{Point(1, "lr", 1), 1}));
  EXPECT_THAT(store_->ReadAfter(JobId{1}, {"lr"}, page->cursor, 10)->points,
              ElementsAre(StoredPoint{Point(2, "lr", 3), 1}));
  EXPECT_TRUE(store_->ReadAfter(JobId{1}, {"no.such"}, 0, 10)->points.empty());
}

TEST_P(MetricsStoreContract, JobsDoNotMix) {
  Append(1, {Point(1, "lr", 1)});
  ASSERT_TRUE(store_->AppendPoints({JobId{2}, 1}, 0, 0, {Point(7, "lr", 7)}, 10).ok());
  EXPECT_THAT(Series("lr"), ElementsAre("1:1@1"));
  EXPECT_EQ(store_->ReadAfter(JobId{2}, {}, 0, 10)->points.size(), 1u);
}

TEST_P(MetricsStoreContract, APageHasALimit) {
  std::vector<MetricPoint> points;
  for (int64_t step = 0; step < kMetricPageMax + 5; ++step) points.push_back(Point(step, "lr", 1));
  Append(1, points);
  EXPECT_EQ(store_->ReadAfter(JobId{1}, {}, 0, 1'000'000)->points.size(),
            static_cast<size_t>(kMetricPageMax));
}

TEST_P(MetricsStoreContract, ReadersAndTheWriterWorkAtTheSameTime) {
  constexpr int kChunks = 200;
  std::thread writer([this] {
    for (int i = 0; i < kChunks; ++i) {
      TY_CHECK_OK(store_
                      ->AppendPoints({JobId{1}, 1}, 0, int64_t{i} * 10,
                                     {Point(i, "lr", i), Point(i, absl::StrCat("m", i), 1)},
                                     int64_t{i} * 10 + 10)
                      .status());
    }
  });
  int64_t cursor = 0;
  size_t read = 0;
  while (read < size_t{2} * kChunks) {
    const auto page = store_->ReadAfter(JobId{1}, {}, cursor, 50);
    ASSERT_TRUE(page.ok()) << page.status();
    cursor = page->cursor;
    read += page->points.size();
    ASSERT_EQ(read % 2, 0u) << "half a chunk was seen";
    ASSERT_TRUE(store_->Query(JobId{1}, {}, {}).ok());
  }
  writer.join();
  EXPECT_EQ(Series("lr").size(), static_cast<size_t>(kChunks));
}

TEST_P(MetricsStoreContract, AFewPointsStandForASeries) {
  std::vector<MetricPoint> points;
  for (int64_t step = 0; step <= 10; ++step) points.push_back(Point(step, "lr", 1));
  Append(1, points);
  const auto steps = [this](int64_t max_points) {
    std::vector<int64_t> found;
    const auto series = store_->Query(JobId{1}, {}, {.max_points = max_points});
    TY_CHECK_OK(series.status());
    for (const auto& stored : series->at("lr")) found.push_back(stored.point.step);
    return found;
  };
  EXPECT_THAT(steps(3), ElementsAre(0, 5, 10));
  EXPECT_THAT(steps(1), ElementsAre(10));
  EXPECT_EQ(steps(11).size(), 11u);
  EXPECT_EQ(steps(12).size(), 11u);
}

// A peak between the points that are chosen evenly would be lost in a plot.
TEST_P(MetricsStoreContract, APlotKeepsThePeaksOfASeries) {
  std::vector<MetricPoint> points;
  for (int64_t step = 0; step <= 1000; ++step) points.push_back(Point(step, "lr", 1));
  points[137].value = 50;
  points[138].value = -50;
  points[700].value = std::numeric_limits<double>::quiet_NaN();
  for (size_t step = 850; step <= 1000; ++step) points[step].value = points[700].value;
  Append(1, points);
  const auto chosen = [this](const PointChoice& choice) {
    std::vector<std::pair<int64_t, double>> found;
    const auto series = store_->Query(JobId{1}, {"lr"}, choice);
    TY_CHECK_OK(series.status());
    for (const auto& stored : series->at("lr")) {
      found.emplace_back(stored.point.step, stored.point.value);
    }
    return found;
  };
  const auto few = chosen({.max_points = 22, .keeps_extremes = true});
  EXPECT_EQ(few.size(), 22u) << "also where all points of a stretch are alike";
  EXPECT_THAT(few, ::testing::Contains(std::pair<int64_t, double>(137, 50)));
  EXPECT_THAT(few, ::testing::Contains(std::pair<int64_t, double>(138, -50)));
  EXPECT_EQ(few.front().first, 0);
  EXPECT_EQ(few.back().first, 1000);
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(),
                             [](const auto& a, const auto& b) { return a.first < b.first; }));
  const auto numbers = std::count_if(few.begin(), few.end(),
                                     [](const auto& point) { return !std::isnan(point.second); });
  EXPECT_LT(numbers, static_cast<int64_t>(few.size()) - 1) << "that all is NaN is shown";
  EXPECT_EQ(chosen({.max_points = 3, .keeps_extremes = true}).size(), 3u);
  EXPECT_EQ(chosen({.max_points = 1001, .keeps_extremes = true}).size(), 1001u);

  EXPECT_THAT(chosen({.first_step = 136, .last_step = 138}),
              ElementsAre(std::pair<int64_t, double>(136, 1), std::pair<int64_t, double>(137, 50),
                          std::pair<int64_t, double>(138, -50)));
  EXPECT_TRUE(chosen({.first_step = 2000}).empty());
}

// Two stores that get the same appends must answer alike. Attempts resume, some late lines of old
// attempts arrive, and some metrics are reported by two ranks, which takes all ways through the
// store on disk.
class Twins {
 public:
  static constexpr int64_t kLastStep = int64_t{1} << 40;

  explicit Twins(std::string path) : path_(std::move(path)) { Reopen(); }

  void Reopen() {
    disk_ = nullptr;
    auto store = OpenSqliteMetricsStore(path_);
    TY_CHECK_OK(store.status());
    disk_ = *std::move(store);
  }
  void Append(int32_t attempt, int32_t rank, const std::vector<MetricPoint>& points) {
    for (MetricsStore* store : {static_cast<MetricsStore*>(&memory_), disk_.get()}) {
      const int64_t offset = *store->ReadOffset({JobId{1}, attempt}, rank);
      const auto end = offset + static_cast<int64_t>(points.size());
      TY_CHECK_OK(store->AppendPoints({JobId{1}, attempt}, rank, offset, points, end).status());
    }
  }
  void DeleteAttempt(int32_t attempt) {
    TY_CHECK_OK(memory_.DeleteAttempt({JobId{1}, attempt}));
    TY_CHECK_OK(disk_->DeleteAttempt({JobId{1}, attempt}));
  }
  void Compare() {
    EXPECT_EQ(*disk_->CountPoints(JobId{1}), *memory_.CountPoints(JobId{1}));
    for (const int64_t max_points : {0, 1, 2, 7, 500, 100'000}) {
      EXPECT_EQ(*disk_->Query(JobId{1}, {}, {.max_points = max_points}),
                *memory_.Query(JobId{1}, {}, {.max_points = max_points}))
          << max_points;
    }
    for (const int64_t max_points : {0, 4, 9, 30, 300, 2000}) {
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>(0, kLastStep), {300, 1700}}) {
        const PointChoice choice = {max_points, true, first, last};
        EXPECT_EQ(*disk_->Query(JobId{1}, {}, choice), *memory_.Query(JobId{1}, {}, choice))
            << max_points << " of " << first << " to " << last;
      }
    }
    for (const std::vector<std::string>& names :
         {std::vector<std::string>(), {"no.such", "test.accuracy", "both"}, {"no.such"}}) {
      const std::vector<StoredPoint> expected = ReadAll(memory_, names, kMetricPageMax);
      EXPECT_EQ(ReadAll(*disk_, names, 77), expected);
      EXPECT_EQ(ReadAll(*disk_, names, 3000), expected);
    }
  }

 private:
  // Reads all points of the job in order of arrival, page by page.
  static std::vector<StoredPoint> ReadAll(MetricsStore& store,
                                          const std::vector<std::string>& names, int64_t limit) {
    std::vector<StoredPoint> points;
    int64_t cursor = 0;
    while (true) {
      const auto page = store.ReadAfter(JobId{1}, names, cursor, limit);
      TY_CHECK_OK(page.status());
      EXPECT_LE(page->points.size(), static_cast<size_t>(limit));
      if (page->points.empty()) return points;
      points.insert(points.end(), page->points.begin(), page->points.end());
      cursor = page->cursor;
    }
  }

  const std::string path_;
  MemoryMetricsStore memory_;
  std::unique_ptr<MetricsStore> disk_;
};

TEST(MetricsStoreTwins, AnswerAlikeWhateverArrives) {
  for (const uint32_t seed : {1u, 2u, 3u, 4u}) {
    const trainyard::testing::TempDir directory;
    Twins twins(directory.File("metrics.db"));
    std::mt19937 random(seed);
    const auto draw = [&random](int64_t below) { return static_cast<int64_t>(random()) % below; };
    int64_t step = 0;
    for (int32_t attempt = 1; attempt <= 4; ++attempt) {
      if (attempt > 1) step = std::max<int64_t>(0, step - draw(700));
      for (int append = 0; append < 12; ++append) {
        std::vector<MetricPoint> points;
        for (const int64_t end = step + 1 + draw(200); step < end; ++step) {
          points.push_back(Point(step, "train.loss", static_cast<double>(draw(1000))));
          if (step % 3 == 0) points.push_back(Point(step, "lr", 1));
          if (step % 50 == 0) points.push_back(Point(step, "test.accuracy", 1));
          if (seed > 2) points.push_back(Point(step, "both", 1));
        }
        twins.Append(attempt, 0, points);
        if (seed > 2) twins.Append(attempt, 1, {Point(step - draw(300), "both", 2)});
        if (attempt > 1 && append == 5) twins.Append(attempt - 1, 0, {Point(step, "lr", 3)});
      }
      twins.Compare();
    }
    twins.Reopen();
    twins.DeleteAttempt(2);
    twins.Compare();
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, MetricsStoreContract,
                         ::testing::Values(Kind::kMemory, Kind::kSqlite), [](const auto& tested) {
                           return tested.param == Kind::kMemory ? "Memory" : "Sqlite";
                         });

}  // namespace
}  // namespace trainyard::store
