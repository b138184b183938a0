// Tests CIFAR in its binary form: files, folders, the packed archive, and what can be wrong with
// them.
#include "worker/data/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/idx_files.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/data/tar_files.h"
#include "worker/data/normalization.h"
#include "worker/data/open_dataset.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns records with the given labels. Pixel p of record i is (7 * i + p) % 256.
std::string Records(const std::vector<std::string>& labels, int first = 0) {
  std::string bytes;
  for (const std::string& label : labels) {
    bytes += label;
    for (int p = 0; p < 3072; ++p) bytes += static_cast<char>((7 * first + p) % 256);
    ++first;
  }
  return bytes;
}

std::string BatchName(int number) {
  return absl::StrCat("data_batch_", number, ".bin");
}

class CifarTest : public ::testing::Test {
 protected:
  // Writes ten samples: two in each of the five files, with the labels 0 to 9.
  void WriteTen(const std::string& folder) {
    ASSERT_TRUE(MakeDirectories(folder_.File(folder)).ok());
    for (int i = 0; i < 5; ++i) {
      folder_.Write(JoinPath(folder, BatchName(i + 1)), Batch(i));
    }
  }
  static std::string Batch(int i) {
    const auto label = [](int value) { return std::string(1, static_cast<char>(value)); };
    return Records({label(2 * i), label(2 * i + 1)}, 2 * i);
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(absl::string_view name = "cifar10",
                                                Split split = Split::kTrain) const {
    return OpenDataset(name, split, DatasetOptions{folder_.path(), 0, 0});
  }
  std::string Refusal(absl::StatusCode code, absl::string_view name = "cifar10") const {
    const absl::Status status = Open(name).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const testing::TempDir folder_;
};

TEST_F(CifarTest, ReadsTheRecordsOfAllFilesInOrder) {
  WriteTen("cifar10");
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 10);
  EXPECT_EQ((*dataset)->classes(), 10);
  EXPECT_THAT((*dataset)->sample_shape(), ElementsAre(3, 32, 32));
  std::vector<float> pixels(3072);
  for (int32_t i = 0; i < 10; ++i) {
    int32_t label = -1;
    ASSERT_TRUE((*dataset)->Read(i, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
    EXPECT_EQ(label, i);
    EXPECT_EQ(pixels[0], static_cast<float>(7 * i) / 255.0F);
    // Green follows red, so this is pixel 1024 of the record.
    EXPECT_EQ(pixels[1024 + 5], static_cast<float>((7 * i + 5) % 256) / 255.0F);
  }
}

TEST_F(CifarTest, HasOneDigestWhereverItLies) {
  WriteTen("cifar10/cifar-10-batches-bin");
  const auto nested = Open();
  ASSERT_TRUE(nested.ok()) << nested.status();
  ASSERT_TRUE(RemoveTree(folder_.File("cifar10")).ok());
  WriteTen("cifar-10-batches-bin");
  const auto beside = Open();
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ((*beside)->digest(), (*nested)->digest());
  ASSERT_TRUE(RemoveTree(folder_.File("cifar-10-batches-bin")).ok());
  std::vector<TarFile> files;
  files.reserve(5);
  for (int i = 0; i < 5; ++i) {
    files.push_back({absl::StrCat("cifar-10-batches-bin/", BatchName(i + 1)), Batch(i)});
  }
  ASSERT_TRUE(MakeDirectories(folder_.File("cifar10")).ok());
  folder_.Write("cifar10/cifar-10-binary.tar.gz", Gzip(TarBytes(files)));
  const auto packed = Open();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ((*packed)->digest(), (*nested)->digest());
  EXPECT_THAT((*packed)->digest(), HasSubstr("xxh3-128:"));
}

TEST_F(CifarTest, TakesTheFineLabelOfAHundred) {
  ASSERT_TRUE(MakeDirectories(folder_.File("cifar100")).ok());
  folder_.Write("cifar100/train.bin",
                Records({std::string("\x07\x63", 2), std::string("\x13\0", 2)}));
  const auto dataset = Open("cifar100");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->classes(), 100);
  std::vector<float> pixels(3072);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(0, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
  EXPECT_EQ(label, 99);
  EXPECT_EQ(pixels[1], 1.0F / 255.0F);
  ASSERT_TRUE((*dataset)->Read(1, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
  EXPECT_EQ(label, 0);
}

TEST_F(CifarTest, RefusesAShortFile) {
  WriteTen("cifar10");
  const std::string path = folder_.Write("cifar10/data_batch_3.bin", Batch(2).substr(0, 4000));
  const std::string message = Refusal(absl::StatusCode::kDataLoss);
  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("byte 4000: the file ends 927 bytes into a record; expected whole "
                                 "records of 3073 bytes"));
  folder_.Write("cifar10/data_batch_3.bin", "");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("byte 0: the file ends"));
}

TEST_F(CifarTest, RefusesALabelOutOfRange) {
  WriteTen("cifar10");
  const std::string path = folder_.Write("cifar10/data_batch_2.bin",
                                         Records({std::string("\x03"), std::string("\x0a")}));
  const std::string message = Refusal(absl::StatusCode::kDataLoss);
  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("byte 3073: label 10; expected 0 to 9"));
  folder_.Write("train.bin", Records({std::string("\x00\x64", 2)}));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss, "cifar100"),
              HasSubstr("byte 1: label 100; expected 0 to 99"));
}

TEST_F(CifarTest, NamesWhatIsMissing) {
  const std::string message = Refusal(absl::StatusCode::kNotFound);
  EXPECT_THAT(message, HasSubstr(folder_.File("cifar10/cifar-10-batches-bin/data_batch_1.bin")));
  EXPECT_THAT(message, HasSubstr(folder_.File("cifar-10-binary.tar.gz")));
  EXPECT_EQ(ErrorReason(Open().status()), "DATASET_NOT_FOUND");
  WriteTen("cifar10");
  ASSERT_TRUE(RemoveTree(folder_.File("cifar10/data_batch_4.bin")).ok());
  EXPECT_THAT(Refusal(absl::StatusCode::kNotFound),
              HasSubstr(absl::StrCat("'", folder_.File("cifar10"), "' has 4 of the 5 files of the ",
                                     "split, and lacks data_batch_4.bin; put the rest there")));
  EXPECT_EQ(ErrorReason(Open().status()), "DATASET_INCOMPLETE");
  EXPECT_THAT(std::string(Open("cifar10", Split::kTest).status().message()),
              HasSubstr("test_batch.bin"));
  // The first one is as missing as any other, but a whole data set beside it will do.
  ASSERT_TRUE(RemoveTree(folder_.File("cifar10/data_batch_1.bin")).ok());
  EXPECT_EQ(ErrorReason(Open().status()), "DATASET_INCOMPLETE");
  WriteTen("cifar-10-batches-bin");
  EXPECT_TRUE(Open().ok());
}

TEST_F(CifarTest, RefusesABrokenArchive) {
  const std::string path = folder_.Write("cifar-10-binary.tar.gz", Gzip("no archive"));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr(path));
  folder_.Write("cifar-10-binary.tar.gz", Gzip(TarBytes({{"data_batch_1.bin", Batch(0)}})));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("no member 'data_batch_2.bin'"));
}

std::string Zstd(absl::string_view content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

std::vector<TarFile> JpegFiles() {
  return {{"train/frog/00001.jpg", FlatJpeg(32, 32, 51)},
          {"train/truck/00000.jpg", FlatJpeg(32, 32, 102)},
          {"test/cat/00000.jpg", FlatJpeg(32, 32, 204)},
          {"train/airplane/00002.jpg", FlatJpeg(32, 32, 255)}};
}

TEST_F(CifarTest, ReadsAnArchiveOfJpegsInTheOrderOfTheIndex) {
  folder_.Write("cifar10-images.tar.zst", Zstd(TarBytes(JpegFiles())));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 3);
  EXPECT_EQ((*dataset)->classes(), 10);
  std::vector<float> pixels(3072);
  const std::vector<std::pair<int32_t, float>> expected = {{9, 0.4F}, {6, 0.2F}, {0, 1.0F}};
  for (size_t i = 0; i < 3; ++i) {
    int32_t label = -1;
    ASSERT_TRUE(
        (*dataset)
            ->Read(static_cast<int64_t>(i), absl::MakeSpan(pixels), absl::MakeSpan(&label, 1))
            .ok());
    EXPECT_EQ(label, expected[i].first);
    EXPECT_NEAR(pixels[100], expected[i].second, 0.01);
    EXPECT_NEAR(pixels[3071], expected[i].second, 0.01);
  }
  EXPECT_EQ((*Open("cifar10", Split::kTest))->size(), 1);
  const std::string digest = (*dataset)->digest();
  ASSERT_TRUE(RemoveTree(folder_.File("cifar10-images.tar.zst")).ok());
  folder_.Write("cifar10-images.tar", TarBytes(JpegFiles()));
  EXPECT_EQ((*Open())->digest(), digest);
}

TEST_F(CifarTest, RefusesJpegsThatAreNoCifar) {
  std::vector<TarFile> files = JpegFiles();
  files[0].name = "train/newt/00001.jpg";
  folder_.Write("cifar10-images.tar", TarBytes(files));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("member 'train/newt/00001.jpg' is of class 'newt'; expected one of"));
  files[0] = {"train/frog/00001.jpg", FlatJpeg(33, 32, 51)};
  folder_.Write("cifar10-images.tar", TarBytes(files));
  EXPECT_THAT(
      Refusal(absl::StatusCode::kDataLoss),
      HasSubstr("cifar10-images.tar!train/frog/00001.jpg' is corrupt: an image of 33 x 32"));
  files[0].content = files[0].content.substr(0, 500);
  folder_.Write("cifar10-images.tar", TarBytes(files));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("00001.jpg' is corrupt: byte 500"));
  folder_.Write("cifar10-images.tar", TarBytes({{"elsewhere/1.jpg", ""}}));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("no member train/<class>"));
}

TEST_F(CifarTest, RefusesABrokenZstdFile) {
  const std::string packed = Zstd(TarBytes(JpegFiles()));
  folder_.Write("cifar10-images.tar.zst", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("the file ends inside the compressed data"));
  folder_.Write("cifar10-images.tar.zst", "neither");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("byte 0 of the compressed file"));
  // A frame of an old format asks for a window of 128 MiB.
  const std::string old_frame("\x27\xb5\x2f\xfd\x00\x88", 6);
  for (const std::string& before : {std::string(), packed}) {
    folder_.Write("cifar10-images.tar.zst", before + old_frame);
    EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
                HasSubstr(absl::StrCat("byte ", before.size(),
                                       " of the compressed file: no frame of Zstandard begins")));
  }
}

TEST(CifarJpegs, TheKnownArchiveIsWhatItAlwaysWas) {
  const auto folder = testing::DataPath("cifar10");
  if (!folder) GTEST_SKIP() << testing::MissingData("cifar10");
  const auto dataset = OpenDataset("cifar10", Split::kTest, DatasetOptions{*folder, 0, 0});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 10'000);
  std::vector<float> pixels(3072);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 10'000; ++i) {
    int32_t label = 0;
    ASSERT_TRUE((*dataset)->Read(i, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
    ++counts[static_cast<size_t>(label)];
  }
  EXPECT_THAT(counts, ::testing::Each(1'000));
  // These are the published mean and deviation of the original pixels.
  const auto normalization = MeasureNormalization(**dataset);
  ASSERT_TRUE(normalization.ok());
  EXPECT_NEAR(normalization->mean[0], 0.4914, 6e-3);
  EXPECT_NEAR(normalization->mean[1], 0.4822, 6e-3);
  EXPECT_NEAR(normalization->mean[2], 0.4465, 6e-3);
  EXPECT_NEAR(normalization->stddev[0], 0.2470, 6e-3);
}

}  // namespace
}  // namespace trainyard::data
