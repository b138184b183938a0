// Tests that a subset has the right samples, whatever the data set is.
#include "worker/data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "worker/data/glyphs.h"

namespace trainyard::data {
namespace {

using ::testing::HasSubstr;

// A data set that does not lie in memory. Its sample i has the value and the label i.
class Counted : public Dataset {
 public:
  explicit Counted(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t classes() const override { return size_; }
  const std::vector<int64_t>& sample_shape() const override { return shape_; }
  absl::Status Read(int64_t index, absl::Span<float> values,
                    absl::Span<int32_t> labels) const override {
    values[0] = static_cast<float>(index);
    labels[0] = static_cast<int32_t>(index);
    return absl::OkStatus();
  }
  absl::Status Verify(int64_t index) const override {
    return index == 3 ? absl::DataLossError("3") : absl::OkStatus();
  }
  const std::string& digest() const override { return digest_; }

 private:
  const int64_t size_;
  const std::vector<int64_t> shape_ = {1, 1, 1};
  const std::string digest_ = "counted";
};

std::vector<int32_t> LabelsOf(int64_t size, int64_t samples, uint64_t seed) {
  const auto subset = TakeSubset(std::make_unique<Counted>(size), samples, seed);
  EXPECT_TRUE(subset.ok()) << subset.status();
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < (*subset)->size(); ++i) {
    float value = 0;
    int32_t label = 0;
    EXPECT_TRUE((*subset)->Read(i, {&value, 1}, {&label, 1}).ok());
    EXPECT_EQ(value, static_cast<float>(label));
    labels.push_back(label);
  }
  return labels;
}

TEST(Subset, HasDifferentSamplesInTheirOrder) {
  const std::vector<int32_t> labels = LabelsOf(1000, 100, 0);
  ASSERT_EQ(labels.size(), 100u);
  EXPECT_TRUE(std::is_sorted(labels.begin(), labels.end()));
  EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end());
  EXPECT_EQ(LabelsOf(1000, 100, 0), labels);
  EXPECT_NE(LabelsOf(1000, 100, 1), labels);
  EXPECT_GT(labels.back(), 500) << "it is no prefix";
}

TEST(Subset, IsPartOfALargerOne) {
  const std::vector<int32_t> small = LabelsOf(1000, 100, 5);
  const std::vector<int32_t> large = LabelsOf(1000, 300, 5);
  EXPECT_TRUE(std::includes(large.begin(), large.end(), small.begin(), small.end()));
}

TEST(Subset, CopiesSamplesThatLieInMemory) {
  const auto whole = MakeGlyphs(Split::kTrain, 50);
  const auto subset = TakeSubset(MakeGlyphs(Split::kTrain, 50), 20, 1);
  ASSERT_TRUE(subset.ok()) << subset.status();
  EXPECT_EQ((*subset)->digest(), whole->digest());
  EXPECT_EQ((*subset)->classes(), whole->classes());
  const ByteSamples all = whole->bytes();
  const ByteSamples some = (*subset)->bytes();
  ASSERT_EQ(some.labels.size(), 20u);
  const size_t bytes = all.pixels.size() / 50;
  size_t next = 0;
  for (size_t i = 0; i < 20; ++i) {
    const auto pixels = some.pixels.subspan(i * bytes, bytes);
    while (next < 50 && all.pixels.subspan(next * bytes, bytes) != pixels) ++next;
    ASSERT_LT(next, 50u) << "sample " << i << " is none of the whole, or out of order";
    EXPECT_EQ(some.labels[i], all.labels[next]);
  }
}

TEST(Subset, OfAllIsTheWholeAndOfMoreIsRefused) {
  EXPECT_EQ(LabelsOf(7, 7, 3), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
  for (const int64_t wrong : {int64_t{0}, int64_t{8}, int64_t{-1}}) {
    EXPECT_THAT(TakeSubset(std::make_unique<Counted>(7), wrong, 0).status().message(),
                HasSubstr("expected 1 to 7"));
  }
}

TEST(Subset, VerifiesItsOwnSamples) {
  const std::vector<int32_t> labels = LabelsOf(8, 5, 0);
  const auto subset = TakeSubset(std::make_unique<Counted>(8), 5, 0);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ((*subset)->Verify(i).ok(), labels[static_cast<size_t>(i)] != 3) << i;
  }
}

}  // namespace
}  // namespace trainyard::data
