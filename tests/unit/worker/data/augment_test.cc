// Tests random changes of samples: what they may do, how often, and that only the key matters.
#include "worker/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "worker/data/memory_dataset.h"
#include "worker/data/prepare_row.h"
#include "worker/data/resample.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int kDraws = 20'000;

uint64_t Key(int64_t index) {
  return SampleKey(7, 3, index);
}

Framing Draw(const Augmentation& augmentation, int64_t index, int64_t width = 32,
             int64_t height = 32) {
  const Framing base{.width = static_cast<double>(width), .height = static_cast<double>(height)};
  return DrawFraming(augmentation, Key(index), width, height, base, 32, 32);
}

TEST(SampleKey, DependsOnSeedEpochAndSample) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t epoch = 0; epoch < 10; ++epoch) {
      for (int64_t index = 0; index < 10; ++index) keys.insert(SampleKey(seed, epoch, index));
    }
  }
  EXPECT_EQ(keys.size(), 1000u);
  // A checkpoint holds only seed and epoch, so the same key must always follow from them.
  EXPECT_EQ(SampleKey(1, 2, 3), 0xebf798a8d3e38d4U);
}

TEST(DrawFraming, WithoutAugmentationIsTheBase) {
  EXPECT_EQ(Draw({}, 0), (Framing{.width = 32, .height = 32}));
}

TEST(DrawFraming, PadCropReachesEveryPlaceEquallyOften) {
  std::vector<int> counts(81);
  for (int64_t i = 0; i < kDraws; ++i) {
    const Framing framing = Draw({.pad_crop = 4}, i);
    EXPECT_EQ(framing.width, 32);
    ++counts[static_cast<size_t>((framing.y + 4) * 9 + framing.x + 4)];
  }
  // 247 are expected of each; five standard deviations are 78.
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 81.0, 78);
}

TEST(DrawFraming, FlipsHalfOfTheTime) {
  int flips = 0;
  for (int64_t i = 0; i < kDraws; ++i) flips += Draw({.flip = true}, i).flip ? 1 : 0;
  EXPECT_NEAR(flips, kDraws / 2.0, 5 * std::sqrt(kDraws / 4.0));
}

TEST(DrawFraming, ResizedCropsHaveTheAreasAndShapesAskedFor) {
  double sum = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Framing framing = Draw({.min_area = 0.08, .max_area = 1}, i, 500, 375);
    ASSERT_GE(framing.x, 0);
    ASSERT_GE(framing.y, 0);
    ASSERT_LE(framing.x + framing.width, 500);
    ASSERT_LE(framing.y + framing.height, 375);
    const double area = framing.width * framing.height / (500.0 * 375);
    ASSERT_GE(area, 0.079);
    const double ratio = framing.width / framing.height;
    // If no try fits, the whole image remains.
    ASSERT_TRUE(area == 1 || (ratio > 0.745 && ratio < 1.343)) << ratio;
    sum += area;
  }
  // Large crops fit less often, so the mean is below that of 0.08 to 1.
  EXPECT_GT(sum / kDraws, 0.40);
  EXPECT_LT(sum / kDraws, 0.54);
}

TEST(DrawFraming, SwitchingOneChoiceOnLeavesTheOthersAlone) {
  for (int64_t i = 0; i < 100; ++i) {
    const Framing both = Draw({.pad_crop = 4, .flip = true}, i);
    EXPECT_EQ(both.flip, Draw({.flip = true}, i).flip);
    EXPECT_EQ(both.x, Draw({.pad_crop = 4}, i).x);
  }
}

TEST(JitterColor, StaysBetweenTheFactorsAndInRange) {
  float low = 1;
  float high = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    std::vector<float> pixels = {0.5F, 1.0F, 0.0F};
    JitterColor({.brightness = 0.4}, Key(i), {3, 1, 1}, absl::MakeSpan(pixels));
    low = std::min(low, pixels[0]);
    high = std::max(high, pixels[0]);
    ASSERT_EQ(pixels[2], 0);
    ASSERT_LE(pixels[1], 1);
  }
  EXPECT_NEAR(low, 0.5 * 0.6, 1e-3);
  EXPECT_NEAR(high, 0.5 * 1.4, 1e-3);
}

TEST(JitterColor, SaturationKeepsGreyAndContrastKeepsTheMean) {
  std::vector<float> grey = {0.25F, 0.5F, 0.25F, 0.5F, 0.25F, 0.5F};
  const std::vector<float> before = grey;
  JitterColor({.saturation = 1}, Key(1), {3, 1, 2}, absl::MakeSpan(grey));
  for (size_t i = 0; i < grey.size(); ++i) EXPECT_NEAR(grey[i], before[i], 1e-4);
  JitterColor({.contrast = 0.5}, Key(1), {3, 1, 2}, absl::MakeSpan(grey));
  EXPECT_NEAR((grey[0] + grey[1]) / 2, 0.375, 1e-3);
  EXPECT_NE(grey[0], before[0]);
}

// This is torchvision's adjust_hue by the textbook: degrees, six cases, doubles.
std::array<double, 3> TurnedHue(double r, double g, double b, double turn) {
  const double value = std::max({r, g, b}), chroma = value - std::min({r, g, b});
  double hue = 0;
  if (chroma > 0) {
    if (value == r) {
      hue = 60 * (g - b) / chroma;
    } else if (value == g) {
      hue = 60 * (2 + (b - r) / chroma);
    } else {
      hue = 60 * (4 + (r - g) / chroma);
    }
  }
  hue = std::fmod(hue + 360 * turn + 720, 360);
  const double x = chroma * (1 - std::abs(std::fmod(hue / 60, 2) - 1)), low = value - chroma;
  const std::array<std::array<double, 3>, 6> cases = {{{chroma, x, 0},
                                                       {x, chroma, 0},
                                                       {0, chroma, x},
                                                       {0, x, chroma},
                                                       {x, 0, chroma},
                                                       {chroma, 0, x}}};
  std::array<double, 3> turned = cases[static_cast<size_t>(hue / 60) % 6];
  for (double& channel : turned) channel += low;
  return turned;
}

// Every color of a lattice is turned by one angle, which is the angle between pure red and its
// result.
TEST(JitterColor, HueIsTurnedAsTheTextbookDoes) {
  constexpr int kLevels = 6;
  constexpr size_t kArea = size_t{kLevels} * kLevels * kLevels;
  const auto level = [](size_t index) { return static_cast<float>(index) / (kLevels - 1); };
  double least = 1, most = -1;
  for (int64_t i = 0; i < 300; ++i) {
    std::vector<float> before(3 * kArea);
    for (size_t p = 0; p < kArea; ++p) {
      before[p] = level(p % kLevels);
      before[kArea + p] = level(p / kLevels % kLevels);
      before[2 * kArea + p] = level(p / kLevels / kLevels);
    }
    std::vector<float> after = before;
    JitterColor({.hue = 0.1}, Key(i), {3, 1, kArea}, absl::MakeSpan(after));
    constexpr size_t kPureRed = kLevels - 1;
    const double up = static_cast<double>(after[kArea + kPureRed]),
                 down = static_cast<double>(after[2 * kArea + kPureRed]);
    const double turn = (up - down) / 6;
    least = std::min(least, turn);
    most = std::max(most, turn);
    for (size_t p = 0; p < kArea; ++p) {
      const auto at = [p](const std::vector<float>& pixels, size_t channel) {
        return static_cast<double>(pixels[channel * kArea + p]);
      };
      const auto expected = TurnedHue(at(before, 0), at(before, 1), at(before, 2), turn);
      for (size_t c = 0; c < 3; ++c) ASSERT_NEAR(at(after, c), expected[c], 3e-6) << p << " " << c;
    }
  }
  EXPECT_NEAR(least, -0.1, 0.005);
  EXPECT_NEAR(most, 0.1, 0.005);
}

TEST(JitterColor, HueComesAtARandomPlaceAndLeavesTheOtherChoicesAlone) {
  const std::vector<float> before = {0.9F, 0.2F, 0.3F, 0.6F, 0.4F, 0.1F};
  int changed = 0;
  for (int64_t i = 0; i < 100; ++i) {
    // A change of hue does not affect grey pixels, so only the other changes remain.
    std::vector<float> with = {0.9F, 0.2F, 0.9F, 0.2F, 0.9F, 0.2F}, without = with;
    JitterColor({.brightness = 0.4, .contrast = 0.4, .hue = 0.5}, Key(i), {3, 1, 2},
                absl::MakeSpan(with));
    JitterColor({.brightness = 0.4, .contrast = 0.4}, Key(i), {3, 1, 2}, absl::MakeSpan(without));
    for (size_t p = 0; p < with.size(); ++p) ASSERT_NEAR(with[p], without[p], 1e-6);
    // Contrast and hue do not commute: if hue comes first, contrast is computed from another grey.
    std::vector<float> both = before, one_by_one = before;
    JitterColor({.contrast = 0.4, .hue = 0.5}, Key(i), {3, 1, 2}, absl::MakeSpan(both));
    JitterColor({.contrast = 0.4}, Key(i), {3, 1, 2}, absl::MakeSpan(one_by_one));
    JitterColor({.hue = 0.5}, Key(i), {3, 1, 2}, absl::MakeSpan(one_by_one));
    double difference = 0;
    for (size_t p = 0; p < both.size(); ++p) {
      difference = std::max(difference, static_cast<double>(std::abs(both[p] - one_by_one[p])));
    }
    if (difference > 1e-4) ++changed;
  }
  EXPECT_GT(changed, 20);
  EXPECT_LT(changed, 80);
}

TEST(CutOut, HidesASquareAndCutsItOffAtTheBorder) {
  int64_t smallest = 100;
  int64_t largest = 0;
  for (int64_t i = 0; i < 2'000; ++i) {
    std::vector<float> pixels(size_t{2} * 8 * 8, 1.0F);
    CutOut({.cutout = 4}, Key(i), {2, 8, 8}, absl::MakeSpan(pixels));
    const auto hidden = std::count(pixels.begin(), pixels.begin() + 64, 0.0F);
    ASSERT_EQ(std::count(pixels.begin() + 64, pixels.end(), 0.0F), hidden);
    smallest = std::min<int64_t>(smallest, hidden);
    largest = std::max<int64_t>(largest, hidden);
  }
  EXPECT_EQ(largest, 16);
  EXPECT_EQ(smallest, 4);  // two of the four rows and columns, in a corner
}

// The image is 1 x 3: 0, 51, 102 of 255.
const ImageView<uint8_t> Strip(const std::vector<uint8_t>& pixels) {
  return {pixels.data(), static_cast<int64_t>(pixels.size()), 1, 1,
          static_cast<int64_t>(pixels.size())};
}

std::vector<float> Resampled(const std::vector<uint8_t>& pixels, const Framing& framing,
                             int64_t out_width) {
  std::vector<float> out(static_cast<size_t>(out_width), -1);
  Resample(Strip(pixels), framing, out_width, 1, absl::MakeSpan(out));
  return out;
}

TEST(Resample, CopiesWholePixelsAndPadsWithBlack) {
  const std::vector<uint8_t> strip = {51, 102, 255};
  EXPECT_THAT(Resampled(strip, {.width = 3, .height = 1}, 3), ElementsAre(0.2F, 0.4F, 1.0F));
  EXPECT_THAT(Resampled(strip, {.x = 2, .width = 3, .height = 1}, 3), ElementsAre(1.0F, 0, 0));
  EXPECT_THAT(Resampled(strip, {.x = -1, .width = 3, .height = 1}, 3), ElementsAre(0, 0.2F, 0.4F));
  EXPECT_THAT(Resampled(strip, {.x = -1, .width = 3, .height = 1, .flip = true}, 3),
              ElementsAre(0.4F, 0.2F, 0));
}

TEST(Resample, IsLinearWhereItEnlarges) {
  // Centres of the four at 0.25, 0.75, 1.25, 1.75 of two pixels whose centres are 0.5 and 1.5.
  const std::vector<float> out = Resampled({0, 255}, {.width = 2, .height = 1}, 4);
  const std::vector<float> expected = {0, 0.25F, 0.75F, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], expected[i], 1e-6);
}

TEST(Resample, PassesNoPixelOverWhereItShrinks) {
  // Eight are scaled to two: each of the eight is within the filter's half-width of 4 of one of
  // them.
  std::vector<uint8_t> strip(8, 0);
  for (size_t lit = 0; lit < 8; ++lit) {
    strip.assign(8, 0);
    strip[lit] = 255;
    const std::vector<float> out = Resampled(strip, {.width = 8, .height = 1}, 2);
    EXPECT_GT(out[0] + out[1], 0.1F) << lit;
  }
}

TEST(Resample, InterleavedColoursBecomePlanes) {
  const std::vector<uint8_t> pixels = {255, 0, 51, 0, 255, 51};  // two pixels of three
  const ImageView<uint8_t> image{pixels.data(), 2, 1, 3, 6};
  std::vector<float> out(size_t{3} * 4);
  Resample(image, {.width = 2, .height = 1}, 4, 1, absl::MakeSpan(out));
  EXPECT_NEAR(out[0], 1, 1e-6);
  EXPECT_NEAR(out[3], 0, 1e-6);
  EXPECT_NEAR(out[4], 0, 1e-6);
  EXPECT_NEAR(out[7], 1, 1e-6);
  for (size_t i = 8; i < 12; ++i) EXPECT_NEAR(out[i], 0.2, 1e-6);
}

TEST(ReadFramed, MovesAndMirrorsAllChannelsAlike) {
  MemoryDataset::Content content{{2, 4, 4}, 10, "made", {}, {3}};
  for (int i = 0; i < 32; ++i) content.pixels.push_back(static_cast<uint8_t>(100 + i));
  const MemoryDataset dataset(content);
  std::vector<float> pixels(32);
  int32_t label = 0;
  std::set<std::vector<float>> seen;
  for (int64_t i = 0; i < 500; ++i) {
    const Augmentation augmentation{.pad_crop = 1, .flip = true};
    ASSERT_TRUE(
        dataset
            .ReadFramed(0, augmentation, Key(i), absl::MakeSpan(pixels), absl::MakeSpan(&label, 1))
            .ok());
    EXPECT_EQ(label, 3);
    for (size_t p = 0; p < 16; ++p) {
      const float other = pixels[p] == 0 ? 0 : pixels[p] + 16.0F / 255;
      ASSERT_NEAR(pixels[p + 16], other, 1e-6);
    }
    seen.insert(pixels);
  }
  EXPECT_EQ(seen.size(), 18u);  // nine places, mirrored or not
}

// Does what a device does with a stored row: see kernels/input.h.
std::vector<float> Made(const StoredRow& row, const MemoryDataset& dataset,
                        const Normalization& normalization) {
  const std::vector<int64_t>& shape = dataset.sample_shape();
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  std::vector<float> made;
  for (int64_t c = 0; c < shape[0]; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t from_x = (row.flip != 0 ? width - 1 - x : x) + row.dx;
        const int64_t from_y = y + row.dy;
        const bool is_inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
        const bool is_cut = x >= row.cut_x && x < row.cut_x + row.cut_width && y >= row.cut_y &&
                            y < row.cut_y + row.cut_height;
        const int64_t at = ((row.image * shape[0] + c) * height + from_y) * width + from_x;
        const uint8_t byte = is_inside ? dataset.bytes().pixels[static_cast<size_t>(at)] : 0;
        const auto channel = static_cast<size_t>(c);
        made.push_back(is_cut ? 0
                              : (static_cast<float>(byte) / 255.0F - normalization.mean[channel]) /
                                    normalization.stddev[channel]);
      }
    }
  }
  return made;
}

// Each byte differs from its neighbours.
MemoryDataset Bytes(const std::vector<int64_t>& shape, int64_t count) {
  MemoryDataset::Content content;
  content.sample_shape = shape;
  content.classes = 10;
  for (int64_t i = 0; i < count * shape[0] * shape[1] * shape[2]; ++i) {
    content.pixels.push_back(static_cast<uint8_t>(i * 37 + i / 256));
  }
  for (int64_t i = 0; i < count; ++i) content.labels.push_back(static_cast<uint8_t>(i % 10));
  return MemoryDataset(std::move(content));
}

TEST(DrawStoredRow, TellsWhatPrepareRowDoes) {
  const std::vector<Augmentation> augmentations = {{},
                                                   {.pad_crop = 4},
                                                   {.flip = true},
                                                   {.cutout = 8},
                                                   {.pad_crop = 3, .flip = true, .cutout = 7},
                                                   {.pad_crop = 40, .flip = true, .cutout = 90}};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 28, 28}, {3, 32, 32}, {4, 5, 9}}) {
    const MemoryDataset dataset = Bytes(shape, 3);
    Preparation preparation;
    preparation.normalization = {{0.5F, 0.4F, 0.3F, 0.2F}, {0.25F, 0.2F, 0.3F, 0.1F}};
    preparation.normalization.mean.resize(static_cast<size_t>(shape[0]));
    preparation.normalization.stddev.resize(static_cast<size_t>(shape[0]));
    for (const Augmentation& augmentation : augmentations) {
      preparation.augmentation = augmentation;
      std::set<std::vector<float>> seen;
      for (int64_t epoch = 0; epoch < 100; ++epoch) {
        const int64_t index = epoch % dataset.size();
        std::vector<float> expected(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
        int32_t label = -1;
        ASSERT_TRUE(PrepareRow(dataset, preparation, epoch, index, absl::MakeSpan(expected),
                               absl::MakeSpan(&label, 1))
                        .status.ok());
        const StoredRow row =
            DrawStoredRow(augmentation, SampleKey(preparation.seed, epoch, index), shape, index);
        ASSERT_EQ(Made(row, dataset, preparation.normalization), expected);
        seen.insert(expected);
      }
      if (augmentation == Augmentation{}) {
        EXPECT_EQ(seen.size(), 3u);
      } else if (augmentation.pad_crop == 3) {
        EXPECT_GT(seen.size(), 50u);
      }
    }
  }
}

TEST(DrawStoredRow, IsTheSameForEver) {
  const StoredRow row =
      DrawStoredRow({.pad_crop = 4, .flip = true, .cutout = 8}, Key(11), {3, 32, 32}, 77);
  // A square that reaches over the border is cut off there.
  EXPECT_EQ(row, (StoredRow{77, -3, -4, 14, 0, 8, 7, 1}));
}

TEST(IsStoredRow, HoldsWhereWholePixelsMove) {
  const std::vector<int64_t> rgb = {3, 32, 32};
  EXPECT_TRUE(IsStoredRow({}, rgb));
  EXPECT_TRUE(IsStoredRow({.pad_crop = 4, .flip = true, .cutout = 8}, rgb));
  EXPECT_FALSE(IsStoredRow({.min_area = 0.1, .max_area = 1}, rgb));
  EXPECT_FALSE(IsStoredRow({.brightness = 0.1}, rgb));
  EXPECT_FALSE(IsStoredRow({.contrast = 0.1}, rgb));
  EXPECT_FALSE(IsStoredRow({.saturation = 0.1}, rgb));
  EXPECT_FALSE(IsStoredRow({.hue = 0.1}, rgb));
  EXPECT_TRUE(IsStoredRow({.pad_crop = 4096}, {4, 4096, 4096}));
  EXPECT_FALSE(IsStoredRow({.pad_crop = 4097}, rgb));
  EXPECT_FALSE(IsStoredRow({}, {1, 1, 4097}));
  EXPECT_FALSE(IsStoredRow({}, {5, 32, 32}));
  EXPECT_FALSE(IsStoredRow({}, {128}));
}

}  // namespace
}  // namespace trainyard::data
