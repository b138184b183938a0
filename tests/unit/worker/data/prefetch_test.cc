// Tests the prefetcher: order, bounds, waits and stopping, without a sleep.
#include "worker/data/prefetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>

#include "absl/strings/str_cat.h"
#include "worker/data/memory_dataset.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;

// Sample i consists of the two pixels {i, i + 0.5} of two channels, with label i % 10. `on_read`
// sees each read.
class CountingDataset : public Dataset {
 public:
  int64_t size() const override { return 1000; }
  int64_t classes() const override { return 10; }
  const std::vector<int64_t>& sample_shape() const override { return shape_; }
  absl::Status Read(int64_t index, absl::Span<float> pixels,
                    absl::Span<int32_t> labels) const override {
    if (on_read) on_read(index);
    pixels[0] = static_cast<float>(index);
    pixels[1] = static_cast<float>(index) + 0.5F;
    labels[0] = static_cast<int32_t>(index % 10);
    return absl::OkStatus();
  }
  const std::string& digest() const override { return digest_; }

  std::function<void(int64_t)> on_read;

 private:
  const std::vector<int64_t> shape_ = {2, 1, 1};
  const std::string digest_ = "counting";
};

const Preparation kIdentity = {.normalization = {{0, 0}, {1, 1}}};

// `count` batches of three rows: 0 1 2, 3 4 5 ...
BatchPlan Rows(int64_t count) {
  return [count](int64_t sequence) {
    if (sequence >= count) return std::vector<int64_t>();
    return std::vector<int64_t>{3 * sequence, 3 * sequence + 1, 3 * sequence + 2};
  };
}

TEST(Prefetcher, GivesTheBatchesInOrderAndThenNothing) {
  const CountingDataset dataset;
  for (const int depth : {1, 2, 7}) {
    Prefetcher prefetcher(dataset, kIdentity, Rows(100), depth);
    for (int64_t sequence = 0; sequence < 100; ++sequence) {
      const PreparedBatch* batch = prefetcher.Next();
      ASSERT_NE(batch, nullptr);
      const auto first = static_cast<float>(3 * sequence);
      ASSERT_THAT(batch->inputs, ElementsAre(first, first + 0.5F, first + 1, first + 1.5F,
                                             first + 2, first + 2.5F));
      ASSERT_EQ(batch->labels[2], (3 * sequence + 2) % 10);
    }
    EXPECT_EQ(prefetcher.Next(), nullptr);
    EXPECT_EQ(prefetcher.Next(), nullptr);
  }
}

TEST(Prefetcher, NormalisesEachChannelByItsOwn) {
  const CountingDataset dataset;
  Prefetcher prefetcher(
      dataset, {.normalization = {{1, 2}, {2, 0.5}}},
      [](int64_t sequence) {
        return sequence == 0 ? std::vector<int64_t>{5, 0} : std::vector<int64_t>();
      },
      1);
  const PreparedBatch* batch = prefetcher.Next();
  ASSERT_NE(batch, nullptr);
  // The values are (5 - 1) / 2, (5.5 - 2) / 0.5, (0 - 1) / 2 and (0.5 - 2) / 0.5.
  EXPECT_THAT(batch->inputs, ElementsAre(2, 7, -0.5, -3));
  EXPECT_THAT(batch->labels, ElementsAre(5, 0));
}

TEST(Prefetcher, ABatchMayBeSmallerThanTheOneWhoseMemoryItUses) {
  const CountingDataset dataset;
  Prefetcher prefetcher(
      dataset, kIdentity,
      [](int64_t sequence) {
        return std::vector<int64_t>(sequence < 6 ? static_cast<size_t>(6 - sequence) : 0, 7);
      },
      2);
  for (size_t rows = 6; rows > 0; --rows) {
    const PreparedBatch* batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->labels.size(), rows);
    EXPECT_EQ(batch->inputs.size(), 2 * rows);
  }
  EXPECT_EQ(prefetcher.Next(), nullptr);
}

TEST(Prefetcher, ReadsAheadToItsDepthAndNoFurther) {
  CountingDataset dataset;
  std::atomic<int64_t> planned = 0;
  std::latch full{1};
  {
    constexpr int kDepth = 3;
    Prefetcher prefetcher(
        dataset, kIdentity,
        [&](int64_t sequence) {
          planned = sequence;
          // The prefetcher plans the batch behind the last one that fits, and then waits for room.
          if (sequence == kDepth) full.count_down();
          return std::vector<int64_t>{sequence % 1000};
        },
        kDepth);
    full.wait();
    // The batch in hand keeps its slot while the thread fills all the others again.
    const PreparedBatch* batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    for (int64_t sequence = 0; sequence < 50; ++sequence) {
      EXPECT_EQ(batch->inputs[0], static_cast<float>(sequence));
      EXPECT_LE(planned, sequence + kDepth + 1);
      batch = prefetcher.Next();
      ASSERT_NE(batch, nullptr);
    }
  }
  // Stopped in the middle of an endless stream.
  EXPECT_LE(planned, 50 + 4);
}

TEST(Prefetcher, StopsWithBatchesThatNobodyTook) {
  CountingDataset dataset;
  std::latch reading{1};
  std::latch go_on{1};
  std::atomic<int> reads = 0;
  dataset.on_read = [&](int64_t) {
    if (++reads > 1) return;
    reading.count_down();
    go_on.wait();
  };
  auto prefetcher = std::make_unique<Prefetcher>(
      dataset, kIdentity, [](int64_t) { return std::vector<int64_t>{1}; }, 2);
  reading.wait();
  go_on.count_down();
  prefetcher.reset();
  // No more of the endless stream was read than the ring holds.
  EXPECT_GE(reads, 1);
  EXPECT_LE(reads, 2);
}

// The first query for the time starts the reading, and the second gets an answer 3 s later.
class StartingClock : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch(); }
  absl::Duration Uptime() override {
    if (questions_++ == 0) asked.count_down();
    return questions_ == 1 ? absl::Seconds(100) : absl::Seconds(103);
  }
  void SleepFor(absl::Duration) override {}

  std::latch asked{1};

 private:
  int questions_ = 0;
};

TEST(Prefetcher, AccountsForTheTimeThatItWaits) {
  CountingDataset dataset;
  StartingClock clock;
  dataset.on_read = [&clock](int64_t) { clock.asked.wait(); };
  Prefetcher prefetcher(dataset, kIdentity, Rows(1), 1, clock);
  EXPECT_EQ(prefetcher.waited(), absl::ZeroDuration());
  ASSERT_NE(prefetcher.Next(), nullptr);
  EXPECT_EQ(prefetcher.waited(), absl::Seconds(3));
}

TEST(Prefetcher, ABatchThatIsReadyCostsNoWait) {
  const CountingDataset dataset;
  StartingClock clock;
  std::latch ended{1};
  Prefetcher prefetcher(
      dataset, kIdentity,
      [&ended](int64_t sequence) {
        // The plan of the second batch is asked for once the first is in the ring.
        if (sequence == 1) ended.count_down();
        return sequence == 0 ? std::vector<int64_t>{1} : std::vector<int64_t>();
      },
      2, clock);
  ended.wait();
  ASSERT_NE(prefetcher.Next(), nullptr);
  EXPECT_EQ(prefetcher.waited(), absl::ZeroDuration());
}

// Samples 4 and 5 of each ten are corrupt.
class HoledDataset : public CountingDataset {
 public:
  absl::Status Read(int64_t index, absl::Span<float> pixels,
                    absl::Span<int32_t> labels) const override {
    if (index % 10 == 4 || index % 10 == 5) {
      return absl::DataLossError(absl::StrCat("sample ", index, " is corrupt"));
    }
    return CountingDataset::Read(index, pixels, labels);
  }
};

BatchPlan Five(int64_t count) {
  return [count](int64_t sequence) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 5 && sequence < count; ++i) rows.push_back(5 * sequence + i);
    return rows;
  };
}

TEST(Prefetcher, ACorruptSampleEndsTheStreamWithItsError) {
  const HoledDataset dataset;
  for (const int threads : {1, 3}) {
    Preparation preparation = kIdentity;
    preparation.threads = threads;
    Prefetcher prefetcher(dataset, preparation, Rows(5), 2);
    EXPECT_NE(prefetcher.Next(), nullptr);  // 0 1 2
    EXPECT_TRUE(prefetcher.status().ok());
    EXPECT_EQ(prefetcher.Next(), nullptr);  // 3 4 5
    EXPECT_EQ(prefetcher.status(), absl::DataLossError("sample 4 is corrupt"));
    EXPECT_EQ(prefetcher.Next(), nullptr);
  }
}

TEST(Prefetcher, ReplacesACorruptSampleByTheNextGoodOne) {
  const HoledDataset dataset;
  Preparation preparation = kIdentity;
  preparation.on_corrupt = OnCorrupt::kReplace;
  for (const int threads : {1, 4}) {
    preparation.threads = threads;
    Prefetcher prefetcher(dataset, preparation, Five(2), 2);
    const PreparedBatch* batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->labels, ElementsAre(0, 1, 2, 3, 6));
    EXPECT_EQ(batch->inputs[8], 6);
    EXPECT_EQ(batch->skipped, 2);  // 4 and 5
    batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->labels, ElementsAre(6, 6, 7, 8, 9));
    EXPECT_EQ(batch->skipped, 1);
    EXPECT_EQ(prefetcher.Next(), nullptr);
    EXPECT_TRUE(prefetcher.status().ok());
  }
}

TEST(Prefetcher, LeavesCorruptSamplesOut) {
  const HoledDataset dataset;
  Preparation preparation = kIdentity;
  preparation.on_corrupt = OnCorrupt::kLeaveOut;
  for (const int threads : {1, 4}) {
    preparation.threads = threads;
    Prefetcher prefetcher(dataset, preparation, Five(3), 2);
    const PreparedBatch* batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->labels, ElementsAre(0, 1, 2, 3));
    batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->labels, ElementsAre(6, 7, 8, 9));
    EXPECT_THAT(batch->inputs, ElementsAre(6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5));
    EXPECT_EQ(batch->skipped, 1);
    batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_THAT(batch->labels, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(batch->inputs[0], 10);
  }
}

// All samples are corrupt: a search for a good one would not end.
class RuinedDataset : public CountingDataset {
 public:
  absl::Status Read(int64_t, absl::Span<float>, absl::Span<int32_t>) const override {
    ++reads;
    return absl::DataLossError("ruined");
  }
  mutable std::atomic<int> reads = 0;
};

TEST(Prefetcher, GivesUpOnALongRunOfCorruptSamples) {
  const RuinedDataset dataset;
  Preparation preparation = kIdentity;
  preparation.on_corrupt = OnCorrupt::kReplace;
  Prefetcher prefetcher(
      dataset, preparation,
      [](int64_t sequence) { return std::vector<int64_t>(sequence == 0 ? 1 : 0, 990); }, 1);
  EXPECT_EQ(prefetcher.Next(), nullptr);
  EXPECT_EQ(prefetcher.status(), absl::DataLossError("ruined"));
  EXPECT_EQ(dataset.reads, 100);
}

TEST(Prefetcher, AnyNumberOfThreadsGivesTheSameRows) {
  const CountingDataset dataset;
  Preparation preparation = kIdentity;
  preparation.augmentation = {.pad_crop = 1, .flip = true, .brightness = 0.5, .cutout = 1};
  preparation.seed = 9;
  const auto plan = [](int64_t sequence) {
    if (sequence == 40) return PlannedBatch({});
    return PlannedBatch({sequence, 3 * sequence, 7, 11}, sequence / 10);
  };
  std::vector<std::vector<float>> expected;
  for (const int threads : {1, 2, 5}) {
    preparation.threads = threads;
    Prefetcher prefetcher(dataset, preparation, plan, 3);
    for (size_t sequence = 0; sequence < 40; ++sequence) {
      const PreparedBatch* batch = prefetcher.Next();
      ASSERT_NE(batch, nullptr);
      if (threads == 1) expected.push_back(batch->inputs);
      ASSERT_EQ(batch->inputs, expected[sequence]);
    }
    EXPECT_EQ(prefetcher.Next(), nullptr);
  }
}

// Six grey images of two pixels, {10 i, 10 i + 1}, in memory; `floats_read` counts what Read gave.
class SmallImages : public MemoryDataset {
 public:
  SmallImages() : MemoryDataset(MakeContent()) {}
  absl::Status Read(int64_t index, absl::Span<float> pixels,
                    absl::Span<int32_t> labels) const override {
    floats_read += static_cast<int64_t>(pixels.size());
    return MemoryDataset::Read(index, pixels, labels);
  }

  mutable std::atomic<int64_t> floats_read = 0;

 private:
  static Content MakeContent() {
    return {.sample_shape = {1, 1, 2},
            .classes = 6,
            .digest = "small",
            .pixels = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51},
            .labels = {0, 1, 2, 3, 4, 5}};
  }
};

TEST(Prefetcher, TellsHowRowsAreMadeWithoutMakingThem) {
  const SmallImages dataset;
  Preparation preparation;
  preparation.normalization = {{0.5F}, {0.25F}};
  preparation.augmentation = {.pad_crop = 1, .flip = true, .cutout = 1};
  preparation.seed = 3;
  const auto plan = [](int64_t sequence) {
    if (sequence == 3) return PlannedBatch({});
    return PlannedBatch({sequence, 5, 2}, sequence);
  };
  for (const RowForm form : {RowForm::kStored, RowForm::kBytes}) {
    for (const int threads : {1, 3}) {
      preparation.form = form;
      preparation.threads = threads;
      Prefetcher prefetcher(dataset, preparation, plan, 2);
      for (int64_t sequence = 0; sequence < 3; ++sequence) {
        const PreparedBatch* batch = prefetcher.Next();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->rows, 3);
        EXPECT_THAT(batch->inputs, ::testing::IsEmpty());
        EXPECT_THAT(batch->labels, ElementsAre(sequence, 5, 2));
        const auto row = [&](int64_t image) {
          return DrawStoredRow(preparation.augmentation, SampleKey(3, sequence, image), {1, 1, 2},
                               image);
        };
        EXPECT_THAT(batch->stored, ElementsAre(row(sequence), row(5), row(2)));
        if (form == RowForm::kStored) {
          EXPECT_THAT(batch->pixels, ::testing::IsEmpty());
        } else {
          EXPECT_THAT(batch->pixels, ElementsAre(10 * sequence, 10 * sequence + 1, 50, 51, 20, 21));
        }
      }
      EXPECT_EQ(prefetcher.Next(), nullptr);
      EXPECT_TRUE(prefetcher.status().ok());
    }
  }
  EXPECT_EQ(dataset.floats_read, 0);
}

}  // namespace
}  // namespace trainyard::data
