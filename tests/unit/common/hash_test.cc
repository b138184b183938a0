// Tests the hash of content: known values, in one piece or in many.
#include "common/base/hash.h"

#include <gtest/gtest.h>

#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

TEST(ContentHasher, OfNothingIsTheTestVectorOfXxh3) {
  EXPECT_EQ(ContentHasher().Text(), "xxh3-128:99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ContentHash(""), ContentHasher().Text());
}

TEST(ContentHasher, IsTheSameInPieces) {
  std::string bytes;
  for (int i = 0; i < 10'000; ++i) bytes += static_cast<char>(i * i % 251);
  for (const size_t piece : {1U, 7U, 255U, 4096U}) {
    ContentHasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Update(absl::string_view(bytes).substr(at, piece));
    }
    EXPECT_EQ(hasher.Text(), ContentHash(bytes));
  }
}

TEST(ContentHasher, DiffersForEveryFlippedBit) {
  const std::string bytes = "weights of step 600";
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(ContentHash(flipped), ContentHash(bytes)) << bit;
  }
}

TEST(FileHash, OfAFileIsThatOfItsBytes) {
  const testing::TempDir dir;
  const std::string bytes(3'000'000, 'x');
  EXPECT_EQ(*FileHash(dir.Write("file", bytes)), ContentHash(bytes));
  EXPECT_TRUE(absl::IsNotFound(FileHash(dir.File("absent")).status()));
}

TEST(HashDigits, OnlyAWellFormedHashBecomesAFileName) {
  EXPECT_EQ(*HashDigits("xxh3-128:99aa06d3014798d86001c324468d497f"),
            "99aa06d3014798d86001c324468d497f");
  for (const char* hash : {"", "99aa06d3014798d86001c324468d497f", "xxh3-128:99aa",
                           "xxh3-128:99AA06D3014798D86001C324468D497F",
                           "xxh3-128:../../../../../../etc/passwd00000"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HashDigits(hash).status())) << hash;
  }
}

}  // namespace
}  // namespace trainyard
