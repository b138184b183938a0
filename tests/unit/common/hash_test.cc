// The hash of content: known values, in one piece or in many.
#include "common/base/hash.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

std::string HashOf(absl::string_view bytes) {
  ContentHasher hasher;
  hasher.Update(bytes);
  return hasher.Text();
}

TEST(ContentHasher, OfNothingIsTheTestVectorOfXxh3) {
  EXPECT_EQ(ContentHasher().Text(), "xxh3-128:99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(HashOf(""), ContentHasher().Text());
}

TEST(ContentHasher, IsTheSameInPieces) {
  std::string bytes;
  for (int i = 0; i < 10'000; ++i) bytes += static_cast<char>(i * i % 251);
  for (const size_t piece : {1U, 7U, 255U, 4096U}) {
    ContentHasher hasher;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Update(absl::string_view(bytes).substr(at, piece));
    }
    EXPECT_EQ(hasher.Text(), HashOf(bytes));
  }
}

TEST(ContentHasher, DiffersForEveryFlippedBit) {
  const std::string bytes = "weights of step 600";
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(HashOf(flipped), HashOf(bytes)) << bit;
  }
}

}  // namespace
}  // namespace trainyard
