// Tests that buckets end at the right places, for arenas of many shapes.
#include "worker/parallel/buckets.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {

void PrintTo(const Bucket& bucket, std::ostream* out) {
  *out << "[" << bucket.begin << ", " << bucket.end << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr BucketOptions kOptions = {
    .bucket_elements = 100, .first_bucket_elements = 10, .last_bucket_elements = 20};

std::vector<int64_t> EveryTenth(int64_t size) {
  std::vector<int64_t> ends;
  for (int64_t end = 10; end <= size; end += 10) ends.push_back(end);
  return ends;
}

TEST(Buckets, TheFirstAndTheLastAreSmall) {
  EXPECT_THAT(PlanBuckets(EveryTenth(430), 430, kOptions),
              ElementsAre(Bucket{0, 10}, Bucket{10, 110}, Bucket{110, 210}, Bucket{210, 310},
                          Bucket{310, 410}, Bucket{410, 430}));
}

TEST(Buckets, ALittleBeforeTheLastIsNoBucketOfItsOwn) {
  EXPECT_THAT(PlanBuckets(EveryTenth(250), 250, kOptions),
              ElementsAre(Bucket{0, 10}, Bucket{10, 110}, Bucket{110, 230}, Bucket{230, 250}));
  EXPECT_THAT(PlanBuckets(EveryTenth(160), 160, kOptions),
              ElementsAre(Bucket{0, 10}, Bucket{10, 140}, Bucket{140, 160}));
}

TEST(Buckets, WhatLiesBehindTheGradientsIsApart) {
  EXPECT_THAT(PlanBuckets({50, 60, 63}, 60, kOptions),
              ElementsAre(Bucket{0, 50}, Bucket{50, 60}, Bucket{60, 63}));
  // This holds even where both become ready at once.
  EXPECT_THAT(PlanBuckets({50, 63}, 60, kOptions),
              ElementsAre(Bucket{0, 50}, Bucket{50, 60}, Bucket{60, 63}));
  EXPECT_THAT(PlanBuckets({3}, 0, kOptions), ElementsAre(Bucket{0, 3}));
}

TEST(Buckets, ARangeMuchLargerThanABucketIsCut) {
  EXPECT_THAT(PlanBuckets({5, 405, 410}, 410, kOptions),
              ElementsAre(Bucket{0, 105}, Bucket{105, 205}, Bucket{205, 305}, Bucket{305, 405},
                          Bucket{405, 410}));
  // A range that is as large as two buckets is not cut.
  EXPECT_THAT(PlanBuckets({200}, 200, kOptions), ElementsAre(Bucket{0, 200}));
}

TEST(Buckets, SmallModelsHaveFew) {
  EXPECT_THAT(PlanBuckets({5}, 5, kOptions), ElementsAre(Bucket{0, 5}));
  EXPECT_THAT(PlanBuckets({5, 9}, 9, kOptions), ElementsAre(Bucket{0, 9}));
  EXPECT_THAT(PlanBuckets({9, 12}, 12, kOptions), ElementsAre(Bucket{0, 12}));
  EXPECT_THAT(PlanBuckets({5, 12, 25}, 25, kOptions), ElementsAre(Bucket{0, 12}, Bucket{12, 25}));
  EXPECT_THAT(PlanBuckets({10, 12}, 12, kOptions), ElementsAre(Bucket{0, 10}, Bucket{10, 12}));
  EXPECT_THAT(PlanBuckets({}, 0, kOptions), IsEmpty());
  EXPECT_THAT(PlanBuckets({0, 0}, 0, kOptions), IsEmpty());
}

TEST(Buckets, CoverEveryArenaAndEndWhereRangesEnd) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> ready;
    int64_t end = 0;
    for (auto ranges = random() % 40; ranges > 0; --ranges) {
      end += static_cast<int64_t>(random() % (random() % 9 == 0 ? 450 : 30));
      ready.push_back(end);
    }
    const int64_t gradients = ready.empty() ? 0 : ready[random() % ready.size()];
    int64_t next = 0;
    for (const Bucket& bucket : PlanBuckets(ready, gradients, kOptions)) {
      ASSERT_EQ(bucket.begin, next);
      ASSERT_GT(bucket.end, bucket.begin);
      ASSERT_TRUE(bucket.end <= gradients || bucket.begin >= gradients);
      const auto range_end = std::lower_bound(ready.begin(), ready.end(), bucket.end);
      const int64_t range_begin = range_end == ready.begin() ? 0 : *(range_end - 1);
      ASSERT_TRUE(bucket.end == *range_end || *range_end - range_begin > 200);
      next = bucket.end;
    }
    ASSERT_EQ(next, end);
  }
}

TEST(Buckets, TheHashTellsEveryPlanFromEveryOther) {
  const std::vector<Bucket> buckets = {{0, 10}, {10, 30}};
  EXPECT_EQ(HashOfBuckets(buckets), HashOfBuckets(buckets));
  EXPECT_NE(HashOfBuckets(buckets), HashOfBuckets({{0, 11}, {11, 30}}));
  EXPECT_NE(HashOfBuckets(buckets), HashOfBuckets({{0, 30}}));
  EXPECT_NE(HashOfBuckets(buckets), HashOfBuckets({}));
}

}  // namespace
}  // namespace trainyard::parallel
