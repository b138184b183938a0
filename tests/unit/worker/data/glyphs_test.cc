// Tests that the glyphs always have the same bytes, are balanced, and are neither empty nor
// saturated.
#include "worker/data/glyphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "common/base/hash.h"

namespace trainyard::data {
namespace {

using Image = std::vector<uint8_t>;

Image Draw(Split split, int64_t index) {
  Image image(kGlyphPixels);
  DrawGlyph(split, index, absl::MakeSpan(image));
  return image;
}

std::string HashOf(Split split, int64_t count) {
  ContentHasher hasher;
  for (int64_t i = 0; i < count; ++i) {
    const Image image = Draw(split, i);
    hasher.Update(absl::string_view(reinterpret_cast<const char*>(image.data()), image.size()));
  }
  return hasher.Text();
}

TEST(Glyphs, HaveTheBytesThatTheyAlwaysHad) {
  // These bytes are golden. A resolved spec names the data `glyphs-v1`; other bytes need another
  // version.
  EXPECT_EQ(HashOf(Split::kTrain, 500), "xxh3-128:f7ab30f394109fd2a426e32c004e0ffc");
  EXPECT_EQ(HashOf(Split::kTest, 500), "xxh3-128:a123c719bf895ffc4a7a8ee8ff19b83f");
}

TEST(Glyphs, DependOnSplitAndIndexAlone) {
  EXPECT_EQ(Draw(Split::kTrain, 17), Draw(Split::kTrain, 17));
  EXPECT_NE(Draw(Split::kTrain, 17), Draw(Split::kTest, 17));
  std::set<Image> images;
  for (int64_t i = 0; i < 1000; ++i) {
    images.insert(Draw(Split::kTrain, i));
    images.insert(Draw(Split::kTest, i));
  }
  EXPECT_EQ(images.size(), 2000U);
}

TEST(Glyphs, ADatasetHoldsWhatIsDrawn) {
  const auto small = MakeGlyphs(Split::kTest, 25);
  const auto large = MakeGlyphs(Split::kTest, 50);
  EXPECT_EQ(small->digest(), "glyphs-v1:split=test,size=25");
  EXPECT_EQ(large->digest(), "glyphs-v1:split=test,size=50");
  const Image image = Draw(Split::kTest, 24);
  for (const Dataset* dataset : {small.get(), large.get()}) {
    std::vector<float> pixels(kGlyphPixels);
    int32_t label = -1;
    ASSERT_TRUE(dataset->Read(24, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
    EXPECT_EQ(label, 4);
    for (size_t p = 0; p < image.size(); ++p) {
      ASSERT_EQ(pixels[p], static_cast<float>(image[p]) / 255.0F);
    }
  }
}

TEST(Glyphs, ClassesAreBalanced) {
  std::array<int, kGlyphClasses> counts{};
  for (int64_t i = 0; i < 1000; ++i) ++counts[static_cast<size_t>(GlyphLabel(i))];
  EXPECT_THAT(counts, ::testing::Each(100));
}

TEST(Glyphs, HaveInkAndAreNotSaturated) {
  for (int64_t i = 0; i < 500; ++i) {
    const Image image = Draw(Split::kTrain, i);
    const auto [darkest, brightest] = std::minmax_element(image.begin(), image.end());
    EXPECT_GT(*brightest - *darkest, 60) << i;
    EXPECT_LT(std::count(image.begin(), image.end(), 255), 100) << i;
    EXPECT_LT(std::count(image.begin(), image.end(), 0), 500) << i;
  }
}

TEST(Glyphs, ANearestMeanClassifierIsWeak) {
  // A linear rule cannot read the glyphs: that is the purpose of the data set. The rule uses class
  // means of 2,000 images.
  std::array<std::array<double, kGlyphPixels>, kGlyphClasses> means{};
  const auto centred = [](int64_t index, Split split) {
    const Image image = Draw(split, index);
    double mean = 0;
    for (const uint8_t pixel : image) mean += pixel / static_cast<double>(kGlyphPixels);
    std::array<double, kGlyphPixels> values{};
    for (size_t p = 0; p < image.size(); ++p) values[p] = image[p] - mean;
    return values;
  };
  for (int64_t i = 0; i < 2000; ++i) {
    const auto image = centred(i, Split::kTrain);
    auto& mean = means[static_cast<size_t>(GlyphLabel(i))];
    for (size_t p = 0; p < image.size(); ++p) mean[p] += image[p] / 200;
  }
  int right = 0;
  for (int64_t i = 0; i < 500; ++i) {
    const auto image = centred(i, Split::kTest);
    std::array<double, kGlyphClasses> distances{};
    for (size_t c = 0; c < means.size(); ++c) {
      for (size_t p = 0; p < image.size(); ++p) {
        distances[c] += (image[p] - means[c][p]) * (image[p] - means[c][p]);
      }
    }
    const auto best = std::min_element(distances.begin(), distances.end()) - distances.begin();
    if (best == GlyphLabel(i)) ++right;
  }
  // Chance is 50. The rule does better than chance, since figures and positions are not independent
  // of pixels.
  EXPECT_GT(right, 75);
  EXPECT_LT(right, 250);
}

}  // namespace
}  // namespace trainyard::data
