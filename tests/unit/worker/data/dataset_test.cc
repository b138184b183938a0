// Tests OpenDataset and the measured normalisation, on generated files and on the real
// Fashion-MNIST.
#include "worker/data/open_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/idx_files.h"
#include "worker/data/memory_dataset.h"
#include "worker/data/normalization.h"

namespace trainyard::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns three images of 28 x 28. Pixel p of image i is (i * 50 + p) % 256.
std::string ThreeImages() {
  std::string pixels;
  for (int i = 0; i < 3; ++i) {
    for (int p = 0; p < 784; ++p) pixels += static_cast<char>((i * 50 + p) % 256);
  }
  return IdxBytes({3, 28, 28}, pixels);
}
std::string ThreeLabels() {
  return IdxBytes({3}, absl::string_view("\x00\x09\x04", 3));
}

class IdxDatasetTest : public ::testing::Test {
 protected:
  void Write(absl::string_view images, absl::string_view labels, absl::string_view suffix = "") {
    ASSERT_TRUE(MakeDirectories(folder_.File("mnist")).ok());
    folder_.Write(absl::StrCat("mnist/train-images-idx3-ubyte", suffix), images);
    folder_.Write(absl::StrCat("mnist/train-labels-idx1-ubyte", suffix), labels);
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& folder) const {
    return OpenDataset("mnist", Split::kTrain, DatasetOptions{folder, 0, 0});
  }
  std::string Refusal(absl::StatusCode code) const {
    const absl::Status status = Open(folder_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const testing::TempDir folder_;
};

TEST_F(IdxDatasetTest, ReadsPixelsAndLabels) {
  Write(ThreeImages(), ThreeLabels());
  const auto dataset = Open(folder_.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_EQ((*dataset)->classes(), 10);
  EXPECT_THAT((*dataset)->sample_shape(), ElementsAre(1, 28, 28));
  std::vector<float> pixels(784);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(1, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
  EXPECT_EQ(label, 9);
  EXPECT_EQ(pixels[0], 50.0F / 255.0F);
  EXPECT_EQ(pixels[205], 1.0F);
  EXPECT_EQ(pixels[206], 0.0F);
}

// A device divides the bytes as Read does.
void ExpectBytesAreWhatReadGives(const Dataset& dataset) {
  const ByteSamples samples = dataset.bytes();
  const auto elements = static_cast<size_t>(dataset.sample_shape()[0] * dataset.sample_shape()[1] *
                                            dataset.sample_shape()[2]);
  ASSERT_EQ(samples.pixels.size(), static_cast<size_t>(dataset.size()) * elements);
  ASSERT_EQ(samples.labels.size(), static_cast<size_t>(dataset.size()));
  std::vector<float> values(elements);
  int32_t label = -1;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    ASSERT_TRUE(dataset.Read(i, absl::MakeSpan(values), absl::MakeSpan(&label, 1)).ok());
    EXPECT_EQ(samples.labels[static_cast<size_t>(i)], label);
    for (size_t p = 0; p < elements; ++p) {
      const uint8_t byte = samples.pixels[static_cast<size_t>(i) * elements + p];
      ASSERT_EQ(values[p], static_cast<float>(byte) / 255.0F);
    }
  }
}

TEST_F(IdxDatasetTest, ItsBytesAreWhatReadGives) {
  Write(ThreeImages(), ThreeLabels());
  const auto dataset = Open(folder_.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ExpectBytesAreWhatReadGives(**dataset);
}

TEST(OpenDataset, BytesOfGlyphsAreWhatReadGives) {
  const auto dataset = OpenDataset("glyphs", Split::kTest, DatasetOptions{"", 0, 30});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ExpectBytesAreWhatReadGives(**dataset);
}

TEST_F(IdxDatasetTest, FindsTheFilesInTheFolderItselfToo) {
  Write(ThreeImages(), ThreeLabels());
  EXPECT_TRUE(Open(folder_.File("mnist")).ok());
}

TEST_F(IdxDatasetTest, HasOneDigestPlainOrPacked) {
  Write(ThreeImages(), ThreeLabels());
  const std::string plain = (*Open(folder_.path()))->digest();
  ASSERT_TRUE(RemoveTree(folder_.File("mnist")).ok());
  Write(Gzip(ThreeImages()), Gzip(ThreeLabels()), ".gz");
  const auto packed = Open(folder_.path());
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->digest(), plain);
  EXPECT_THAT(plain, HasSubstr("xxh3-128:"));
  Write(ThreeImages(), IdxBytes({3}, "\x01\x09\x04"));
  EXPECT_NE((*Open(folder_.path()))->digest(), plain);
}

TEST_F(IdxDatasetTest, NamesEveryPathThatItTried) {
  const std::string message = Refusal(absl::StatusCode::kNotFound);
  EXPECT_THAT(message, HasSubstr(folder_.File("mnist/train-images-idx3-ubyte.gz")));
  EXPECT_THAT(message, HasSubstr(folder_.File("train-images-idx3-ubyte")));
  EXPECT_EQ(ErrorReason(Open("").status()), "DATASET_NOT_FOUND");
}

TEST_F(IdxDatasetTest, ImagesWithoutLabelsAreNotFound) {
  Write(ThreeImages(), ThreeLabels());
  ASSERT_TRUE(RemoveTree(folder_.File("mnist/train-labels-idx1-ubyte")).ok());
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound), HasSubstr("mnist/train-labels-idx1-ubyte.gz"));
  EXPECT_EQ(ErrorReason(Open(folder_.path()).status()), "DATASET_INCOMPLETE");
}

TEST_F(IdxDatasetTest, LabelsWithoutImagesAreNotFound) {
  Write(ThreeImages(), ThreeLabels());
  ASSERT_TRUE(RemoveTree(folder_.File("mnist/train-images-idx3-ubyte")).ok());
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound),
              HasSubstr("train-labels-idx1-ubyte' has neither '"));
  EXPECT_EQ(ErrorReason(Open(folder_.path()).status()), "DATASET_INCOMPLETE");
}

TEST_F(IdxDatasetTest, RefusesImagesOfAnotherSize) {
  Write(IdxBytes({3, 2, 2}, "123412341234"), ThreeLabels());
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 8: images of 2 x 2 pixels; expected 28 x 28"));
}

TEST_F(IdxDatasetTest, RefusesAnotherNumberOfLabels) {
  Write(ThreeImages(), IdxBytes({2}, "\x01\x02"));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("byte 4: 2 labels; expected 3"));
}

TEST_F(IdxDatasetTest, RefusesALabelOutOfRange) {
  Write(ThreeImages(), IdxBytes({3}, "\x01\x02\x0a"));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 10: label 10; expected 0 to 9"));
}

TEST(OpenDataset, SuggestsTheNearestName) {
  const absl::Status status = OpenDataset("glyhps", Split::kTrain, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(status), "DATASET_NOT_FOUND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("did you mean 'glyphs'?"));
  EXPECT_THAT(std::string(OpenDataset("imagenet-21k", Split::kTest, {}).status().message()),
              HasSubstr("'imagenet-21k' is unknown; there are cifar10, cifar100, fashion-mnist, "
                        "glyphs, images, mnist"));
}

TEST(OpenDataset, GlyphsHaveTheSizesAskedFor) {
  DatasetOptions options;
  options.train_size = 30;
  options.test_size = 7;
  EXPECT_EQ((*OpenDataset("glyphs", Split::kTrain, options))->size(), 30);
  EXPECT_EQ((*OpenDataset("glyphs", Split::kTest, options))->size(), 7);
  EXPECT_EQ((*OpenDataset("glyphs", Split::kTest, {}))->size(), 4'000);
}

TEST(OpenDataset, GlyphsRefuseSizesOutOfRange) {
  for (const int64_t size : {int64_t{-1}, int64_t{1'000'001}, INT64_MAX}) {
    DatasetOptions options;
    options.train_size = size;
    EXPECT_EQ(OpenDataset("glyphs", Split::kTrain, options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(MeasureNormalization, IsMeanAndDeviationOfEachChannel) {
  // There are two samples of two channels of 1 x 2 pixels. Channel 0 is 0, 51, 102 and 255, and
  // channel 1 does not vary.
  const MemoryDataset dataset({{2, 1, 2}, 10, "made", {0, 51, 85, 85, 102, 255, 85, 85}, {0, 1}});
  const Normalization normalization = *MeasureNormalization(dataset);
  // Channel 0 is 0, 0.2, 0.4 and 1, around 0.4; the squares of the distances are 0.16, 0.04, 0,
  // 0.36.
  EXPECT_NEAR(normalization.mean[0], 0.4, 1e-7);
  EXPECT_NEAR(normalization.stddev[0], std::sqrt((0.16 + 0.04 + 0 + 0.36) / 4), 1e-7);
  EXPECT_NEAR(normalization.mean[1], 1.0 / 3, 1e-7);
  EXPECT_EQ(normalization.stddev[1], 1.0F);
}

TEST(MeasureNormalization, TakesTheFirstTenThousandSamples) {
  MemoryDataset::Content content{{1, 1, 1}, 10, "made", {}, {}};
  content.pixels.assign(10'001, 0);
  content.labels.assign(10'001, 0);
  content.pixels[10'000] = 255;
  EXPECT_EQ(MeasureNormalization(MemoryDataset(content))->mean[0], 0.0F);
  content.pixels[9'999] = 255;
  EXPECT_FLOAT_EQ(MeasureNormalization(MemoryDataset(content))->mean[0], 1e-4F);
}

class FashionMnistTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::DataPath("fashion-mnist")) {
      GTEST_SKIP() << testing::MissingData("fashion-mnist");
    }
  }
  static std::unique_ptr<Dataset> Open(Split split) {
    auto dataset =
        OpenDataset("fashion-mnist", split, DatasetOptions{*testing::DataPath(""), 0, 0});
    TY_CHECK_OK(dataset.status());
    return *std::move(dataset);
  }
  static std::array<int, 10> Histogram(const Dataset& dataset) {
    std::array<int, 10> counts{};
    std::vector<float> pixels(784);
    for (int64_t i = 0; i < dataset.size(); ++i) {
      int32_t label = 0;
      EXPECT_TRUE(dataset.Read(i, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
      ++counts[static_cast<size_t>(label)];
    }
    return counts;
  }
};

TEST_F(FashionMnistTest, TrainIsWhatItAlwaysWas) {
  const auto dataset = Open(Split::kTrain);
  EXPECT_EQ(dataset->size(), 60'000);
  EXPECT_THAT(Histogram(*dataset), Each(6'000));
  EXPECT_EQ(dataset->digest(), "xxh3-128:3d508c3df6dc83203b56a48542f6e0c2");
  // The published mean and deviation of all 60,000 are 0.2860 and 0.3530.
  const Normalization normalization = *MeasureNormalization(*dataset);
  EXPECT_NEAR(normalization.mean[0], 0.2860, 2e-3);
  EXPECT_NEAR(normalization.stddev[0], 0.3530, 2e-3);
}

TEST_F(FashionMnistTest, TestIsWhatItAlwaysWas) {
  const auto dataset = Open(Split::kTest);
  EXPECT_EQ(dataset->size(), 10'000);
  EXPECT_THAT(Histogram(*dataset), Each(1'000));
  EXPECT_EQ(dataset->digest(), "xxh3-128:0139e5e9bcfddfddacf5a1901c84d00b");
}

}  // namespace
}  // namespace trainyard::data
