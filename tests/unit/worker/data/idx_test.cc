// Tests the idx reader: what it accepts, and the position and value in each refusal.
#include "worker/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/idx_files.h"
#include "worker/data/gzip.h"
#include "worker/data/random.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IdxTest : public ::testing::Test {
 protected:
  // Returns the message of the refusal, or an empty text if the file was accepted.
  std::string Refusal(absl::string_view bytes, int dimensions = 1) const {
    const std::string path = folder_.Write("file", bytes);
    const absl::Status status = ReadIdx(path, dimensions).status();
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    return std::string(status.message());
  }

  const testing::TempDir folder_;
};

TEST_F(IdxTest, DoesNotWaitAtAFifo) {
  ASSERT_EQ(mkfifo(folder_.File("fifo").c_str(), 0600), 0);
  const absl::Status status = ReadIdx(folder_.File("fifo"), 1).status();
  EXPECT_EQ(ErrorReason(status), "NOT_A_REGULAR_FILE") << status;
}

TEST_F(IdxTest, ReadsAPlainFile) {
  const auto file = ReadIdx(folder_.Write("file", IdxBytes({2, 1, 3}, "abcdef")), 3);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->dimensions, ElementsAre(2, 1, 3));
  EXPECT_EQ(file->bytes.substr(file->data_offset), "abcdef");
}

TEST_F(IdxTest, ReadsAGzipFile) {
  // It is larger than a block of the decoder, and random enough not to shrink away.
  std::string data;
  for (uint64_t i = 0; i < 600'000; ++i) data += static_cast<char>(Mix64(i));
  const auto file = ReadIdx(folder_.Write("file", Gzip(IdxBytes({600'000}, data))), 1);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes.substr(file->data_offset), data);
}

TEST_F(IdxTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(ReadIdx(folder_.File("none"), 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(IdxTest, RefusesAWrongMagic) {
  std::string bytes = IdxBytes({1}, "a");
  bytes[1] = 7;
  EXPECT_THAT(Refusal(bytes), HasSubstr("byte 1: magic 0x07; expected 0x00"));
}

TEST_F(IdxTest, RefusesAnotherType) {
  std::string bytes = IdxBytes({1}, "a");
  bytes[2] = 0x0d;
  EXPECT_THAT(Refusal(bytes), HasSubstr("byte 2: type 0x0d; expected 0x08"));
}

TEST_F(IdxTest, RefusesAnotherNumberOfDimensions) {
  EXPECT_THAT(Refusal(IdxBytes({1, 1, 1}, "a")), HasSubstr("byte 3: 3 dimensions; expected 1"));
}

TEST_F(IdxTest, RefusesAHeaderThatEndsEarly) {
  const std::string bytes = IdxBytes({1, 1, 1}, "a");
  for (size_t size = 0; size < 16; ++size) {
    EXPECT_THAT(Refusal(absl::string_view(bytes).substr(0, size), 3),
                HasSubstr(absl::StrCat("byte ", size, ": the file ends inside its header of 16")));
  }
}

TEST_F(IdxTest, RefusesDimensionsThatNoFileHas) {
  EXPECT_THAT(Refusal(IdxBytes({0}, "")), HasSubstr("byte 4: dimension 0; expected 1 to"));
  EXPECT_THAT(Refusal(IdxBytes({0xffffffff}, "a")), HasSubstr("byte 4: dimension 4294967295"));
  EXPECT_THAT(Refusal(IdxBytes({65536, 65536, 65536}, "a"), 3),
              HasSubstr("byte 8: dimension 65536; expected 1 to 16384"));
}

TEST_F(IdxTest, RefusesTruncatedDataAndTrailingBytes) {
  EXPECT_THAT(Refusal(IdxBytes({4}, "abc")),
              HasSubstr("byte 11: the file ends too early; dimensions 4 need 4 bytes of data, the "
                        "file holds 3"));
  EXPECT_THAT(Refusal(IdxBytes({4}, "abcde")), HasSubstr("byte 12: bytes follow the last element"));
}

TEST_F(IdxTest, RefusesEveryTruncationOfAGzipFile) {
  const std::string packed = Gzip(IdxBytes({5}, "hello"));
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_NE(Refusal(absl::string_view(packed).substr(0, size)), "") << size;
  }
  EXPECT_THAT(Refusal(absl::string_view(packed).substr(0, 20)),
              HasSubstr("byte 20 of the compressed file: the file ends inside"));
}

TEST_F(IdxTest, AGzipFileWithAFlippedBitIsRefusedOrReadsTheSame) {
  const std::string content = IdxBytes({5}, "hello");
  const std::string packed = Gzip(content);
  int refused = 0;
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    std::string bytes = packed;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const auto file = ReadIdx(folder_.Write("file", bytes), 1);
    if (file.ok()) {
      EXPECT_EQ(file->bytes, content) << bit;
    } else {
      ++refused;
    }
  }
  // The test changes all bytes except gzip's notes of when and where it was packed, and bits that
  // pad its last block.
  EXPECT_GT(refused, 8 * (static_cast<int>(packed.size()) - 8));
}

TEST_F(IdxTest, RefusesBytesBehindTheGzipData) {
  EXPECT_THAT(Refusal(Gzip(IdxBytes({1}, "a")) + "xyz"), HasSubstr("3 bytes follow"));
}

TEST_F(IdxTest, RefusesAGzipFileThatGrowsOutOfMeasure) {
  const std::string bomb = Gzip(IdxBytes({8'000'000}, std::string(8'000'000, '\0')));
  EXPECT_THAT(Refusal(bomb),
              HasSubstr(absl::StrCat("larger than the limit of ", 16 * bomb.size())));
}

TEST(Gzip, AcceptsContentOfExactlyTheLimit) {
  const std::string packed = Gzip("hello");
  EXPECT_EQ(*DecodeGzip(packed, 5), "hello");
  EXPECT_EQ(DecodeGzip(packed, 4).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(*DecodeGzip(Gzip(""), 0), "");
}

}  // namespace
}  // namespace trainyard::data
