// Tests image folders and shards: what is found, read, refused and skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/data/tar_files.h"
#include "worker/data/image_index.h"
#include "worker/data/normalization.h"
#include "worker/data/open_dataset.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A sample has three planes of 8 x 8.
constexpr size_t kPixels = size_t{3} * 8 * 8;

class ImagesTest : public ::testing::Test {
 protected:
  // Writes a file such as "pets/train/cat/1.jpg", with its folders.
  std::string Write(const std::string& name, absl::string_view content) {
    TY_CHECK_OK(MakeDirectories(folder_.File(name.substr(0, name.rfind('/')))));
    return folder_.Write(name, content);
  }
  // The level is 10 * n for image n, so that the sample identifies its image.
  static std::string Image(int n) { return FlatJpeg(24, 16, 10 * n); }
  void WriteFolders() {
    Write("pets/train/dog/b.JPEG", Image(3));
    Write("pets/train/cat/2.jpg", Image(2));
    Write("pets/train/cat/10.jpg", Image(1));
    Write("pets/train/cat/notes.txt", "no image");
    Write("pets/train/dog/more/a.jpg", Image(4));
    Write("pets/test/dog/x.jpeg", Image(5));
  }
  void WriteShards() {
    Write("pets/train/0.tar",
          TarBytes({{"cat/10.jpg", Image(1)}, {"cat/2.jpg", Image(2)}, {"dog/b.JPEG", Image(3)}}));
    Write("pets/train/1.tar", TarBytes({{"x/", "", '5'}, {"x/dog/more.jpg", Image(4)}}));
    Write("pets/val/0.tar", TarBytes({{"dog/x.jpeg", Image(5)}, {"dog/x.cls", "1"}}));
  }
  DatasetOptions Options() const {
    DatasetOptions options;
    options.dataset_dir = folder_.path();
    options.path = "pets";
    options.image_size = 8;
    return options;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(Split split = Split::kTrain) const {
    return OpenDataset("images", split, Options());
  }
  // Returns "level/label" of every sample.
  static std::vector<std::string> Contents(const Dataset& dataset) {
    std::vector<std::string> contents;
    std::vector<float> pixels(kPixels);
    for (int64_t i = 0; i < dataset.size(); ++i) {
      int32_t label = -1;
      TY_CHECK_OK(dataset.Read(i, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)));
      contents.push_back(absl::StrCat(std::lround(pixels[70] * 25.5F), "/", label));
    }
    return contents;
  }

  const testing::TempDir folder_;
};

TEST_F(ImagesTest, FoldersAreClassesAndSorted) {
  WriteFolders();
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->classes(), 2);
  EXPECT_THAT((*train)->sample_shape(), ElementsAre(3, 8, 8));
  EXPECT_THAT(Contents(**train), ElementsAre("1/0", "2/0", "3/1", "4/1"));
  const auto test = Open(Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  // The label is that of the training split, though there is no cat here.
  EXPECT_THAT(Contents(**test), ElementsAre("5/1"));
}

TEST_F(ImagesTest, ShardsHoldTheSame) {
  WriteShards();
  const auto train = Open();
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_THAT(Contents(**train), ElementsAre("1/0", "2/0", "3/1", "4/1"));
  EXPECT_THAT(Contents(**Open(Split::kTest)), ElementsAre("5/1"));
}

TEST_F(ImagesTest, TheDigestTellsNamesSizesAndLabels) {
  WriteFolders();
  const std::string digest = (*Open())->digest();
  EXPECT_EQ((*Open())->digest(), digest);
  Write("pets/train/cat/2.jpg", Image(2) + "x");
  EXPECT_NE((*Open())->digest(), digest);
}

TEST_F(ImagesTest, EvaluationSeesTheMiddle) {
  // The image is 32 x 16 and black, except for the middle 8 columns and rows.
  const auto middle = [](int x, int y, int) {
    return x >= 12 && x < 20 && y >= 4 && y < 12 ? 255 : 0;
  };
  Write("pets/train/a/1.jpg", JpegBytes(32, 16, middle, {.quality = 100, .subsampling = 1}));
  DatasetOptions options = Options();
  options.resize = 16;
  const auto dataset = OpenDataset("images", Split::kTrain, options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> pixels(kPixels);
  int32_t label = -1;
  ASSERT_TRUE((*dataset)->Read(0, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
  for (const float pixel : pixels) EXPECT_NEAR(pixel, 1, 0.05);
}

TEST_F(ImagesTest, TrainingSeesPartsThatDependOnTheKeyAlone) {
  Write("pets/train/a/1.jpg", SlopeJpeg(60, 40));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const Augmentation augmentation{.min_area = 0.1, .max_area = 1, .flip = true};
  std::vector<float> first(kPixels);
  std::vector<float> again(first.size());
  int32_t label = -1;
  std::vector<float> before;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const uint64_t key = SampleKey(1, epoch, 0);
    const auto read = [&](std::vector<float>& out) {
      return (*dataset)->ReadFramed(0, augmentation, key, absl::MakeSpan(out),
                                    absl::MakeSpan(&label, 1));
    };
    ASSERT_TRUE(read(first).ok());
    ASSERT_TRUE(read(again).ok());
    EXPECT_EQ(first, again);
    EXPECT_NE(first, before);
    before = first;
  }
}

TEST_F(ImagesTest, ACorruptImageIsNamedWithPositionAndValue) {
  WriteFolders();
  const std::string bytes = Image(2);
  const std::string path = Write("pets/train/cat/2.jpg", bytes.substr(0, bytes.size() - 10));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> pixels(kPixels);
  int32_t label = -1;
  EXPECT_TRUE((*dataset)->Read(0, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).ok());
  const absl::Status status =
      (*dataset)->Read(1, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1));
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
  EXPECT_EQ(status.message(),
            absl::StrCat("'", path, "' is corrupt: byte ", bytes.size() - 10,
                         ": the file ends without the end mark of a JPEG, 0xffd9"));
  EXPECT_EQ(MeasureNormalization(**dataset).status(), status);
  const auto normalization = MeasureNormalization(**dataset, /*skip_corrupt=*/true);
  ASSERT_TRUE(normalization.ok()) << normalization.status();
  EXPECT_NEAR(normalization->mean[0], (10 + 30 + 40) / 3.0 / 255, 1e-3);
}

TEST_F(ImagesTest, ACorruptMemberIsNamedWithItsShard) {
  Write("pets/train/0.tar", TarBytes({{"cat/1.jpg", "no image"}}));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> pixels(kPixels);
  int32_t label = -1;
  EXPECT_THAT(
      std::string((*dataset)->Read(0, absl::MakeSpan(pixels), absl::MakeSpan(&label, 1)).message()),
      HasSubstr("pets/train/0.tar!cat/1.jpg' is corrupt: byte"));
}

TEST_F(ImagesTest, RefusesWhatIsNoDataSet) {
  EXPECT_EQ(ErrorReason(Open().status()), "DATASET_NOT_FOUND");
  Write("pets/train/cat/readme.txt", "");
  EXPECT_EQ(ErrorReason(Open().status()), "DATASET_NOT_FOUND");
  WriteFolders();
  Write("pets/test/bird/1.jpg", Image(1));
  EXPECT_THAT(std::string(Open(Split::kTest).status().message()),
              HasSubstr("class 'bird' is none of the 2 classes of the training split"));
  Write("pets/train/0.tar", TarBytes({{"1.jpg", Image(1)}}));
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("byte 512: member '1.jpg' lies in no folder named after its class"));
  Write("pets/train/0.tar", "cut");
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("0.tar' is corrupt: byte 3"));
}

TEST_F(ImagesTest, RefusesAClassWithoutImages) {
  WriteFolders();
  const std::string readme = Write("pets/train/bird/readme.txt", "");
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const absl::Status status = Open(split).status();
    EXPECT_EQ(ErrorReason(status), "DATASET_INCOMPLETE") << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("1 of 3 have no JPEG, such as '", folder_.File("pets/train/bird"),
                               "'; put the images there, or remove the folder")));
  }
  TY_CHECK_OK(RemoveTree(folder_.File("pets/train/bird")));
  TY_CHECK_OK(MakeDirectories(folder_.File("pets/test/cat")));
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(ErrorReason(Open(Split::kTest).status()), "DATASET_INCOMPLETE");
}

TEST_F(ImagesTest, RefusesPathsThatLeaveTheFolderOfDataSets) {
  WriteFolders();
  for (const char* path : {"", "/etc", "..", "pets/../../secret"}) {
    DatasetOptions options = Options();
    options.path = path;
    options.resize = 7;
    const absl::Status status = OpenDataset("images", Split::kTrain, options).status();
    std::vector<std::string> fields;
    for (const FieldViolation& violation : GetFieldViolations(status)) {
      fields.push_back(violation.field);
    }
    EXPECT_THAT(fields, ElementsAre("spec.data.path", "spec.data.resize")) << path;
  }
}

class ShardIndexTest : public ImagesTest {
 protected:
  std::vector<std::string> Names() const {
    const auto members = ReadShardMembers(folder_.File("s.tar"));
    TY_CHECK_OK(members.status());
    std::vector<std::string> names;
    for (const TarMember& member : *members) names.push_back(member.name);
    return names;
  }
  std::string IndexPath() const { return folder_.File("s.tar.index"); }
  // Sets the index's time `seconds` after the shard's.
  void Age(int seconds) const {
    const auto time = std::filesystem::last_write_time(folder_.File("s.tar"));
    std::filesystem::last_write_time(IndexPath(), time + std::chrono::seconds(seconds));
  }
};

TEST_F(ShardIndexTest, IsWrittenOnceAndThenRead) {
  folder_.Write("s.tar", TarBytes({{"a/1 with blanks.jpg", "1"}, {"b/2.jpg", "22"}}));
  EXPECT_THAT(Names(), ElementsAre("a/1 with blanks.jpg", "b/2.jpg"));
  const auto index = ReadFile(IndexPath());
  ASSERT_TRUE(index.ok());
  EXPECT_THAT(*index, HasSubstr("512 1 a/1 with blanks.jpg\n1536 2 b/2.jpg\n"));
  // If the index is valid, the shard is not read: this one has another member of the same length.
  folder_.Write("s.tar", TarBytes({{"a/1 with blanks.jpg", "1"}, {"c/2.jpg", "22"}}));
  Age(1);
  EXPECT_THAT(Names(), ElementsAre("a/1 with blanks.jpg", "b/2.jpg"));
}

TEST_F(ShardIndexTest, IsMadeAnewWhereItDoesNotFit) {
  folder_.Write("s.tar", TarBytes({{"a/1.jpg", "1"}}));
  EXPECT_THAT(Names(), ElementsAre("a/1.jpg"));
  // The index is older than the shard.
  folder_.Write("s.tar", TarBytes({{"b/1.jpg", "1"}}));
  Age(-10);
  EXPECT_THAT(Names(), ElementsAre("b/1.jpg"));
  // The shard has another size now.
  folder_.Write("s.tar", TarBytes({{"b/1.jpg", "1"}, {"b/2.jpg", "2"}}));
  Age(10);
  EXPECT_THAT(Names(), ElementsAre("b/1.jpg", "b/2.jpg"));
  // The index is damaged.
  std::string index = *ReadFile(IndexPath());
  index[index.size() - 3] = 'X';
  folder_.Write("s.tar.index", index);
  Age(10);
  EXPECT_THAT(Names(), ElementsAre("b/1.jpg", "b/2.jpg"));
  EXPECT_NE(*ReadFile(IndexPath()), index);
}

TEST_F(ShardIndexTest, IsNoFifo) {
  folder_.Write("s.tar", TarBytes({{"a/1.jpg", "1"}}));
  ASSERT_EQ(mkfifo(IndexPath().c_str(), 0600), 0);
  Age(10);
  const absl::Status index = ReadShardMembers(folder_.File("s.tar")).status();
  EXPECT_EQ(ErrorReason(index), "NOT_A_REGULAR_FILE") << index;
  EXPECT_THAT(std::string(index.message()), HasSubstr(IndexPath()));
}

TEST_F(ShardIndexTest, MayBeALinkIntoAPool) {
  folder_.Write("pool.tar", TarBytes({{"a/1.jpg", "1"}}));
  ASSERT_TRUE(ReadShardMembers(folder_.File("pool.tar")).ok());
  ASSERT_EQ(symlink("pool.tar", folder_.File("s.tar").c_str()), 0);
  ASSERT_EQ(symlink("pool.tar.index", IndexPath().c_str()), 0);
  Age(10);
  EXPECT_THAT(Names(), ElementsAre("a/1.jpg"));
}

TEST_F(ShardIndexTest, DoesWithoutWhereTheFolderCannotBeWrittenTo) {
  folder_.Write("s.tar", TarBytes({{"a/1.jpg", "1"}}));
  // There is a folder in its place, which not even root can overwrite with a file.
  ASSERT_TRUE(MakeDirectories(IndexPath()).ok());
  EXPECT_THAT(Names(), ElementsAre("a/1.jpg"));
}

}  // namespace
}  // namespace trainyard::data
