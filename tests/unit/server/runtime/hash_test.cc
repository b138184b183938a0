#include "server/runtime/hash.h"

#include <gtest/gtest.h>

#include "tests/testing/temp_dir.h"

namespace trainyard::runtime {
namespace {

TEST(Hash, KnowsTheHashOfNothing) {
  // XXH3_128bits of no bytes, from the reference implementation.
  EXPECT_EQ(ContentHash(""), "xxh3-128:99aa06d3014798d86001c324468d497f");
}

TEST(Hash, AFileHashesAsItsBytes) {
  const testing::TempDir dir;
  const std::string bytes(3'000'000, 'x');
  EXPECT_EQ(*FileHash(dir.Write("file", bytes)), ContentHash(bytes));
  EXPECT_TRUE(absl::IsNotFound(FileHash(dir.File("absent")).status()));
}

TEST(Hash, OnlyAWellFormedHashBecomesAFileName) {
  EXPECT_EQ(*HashDigits("xxh3-128:99aa06d3014798d86001c324468d497f"),
            "99aa06d3014798d86001c324468d497f");
  for (const char* hash : {"", "99aa06d3014798d86001c324468d497f", "xxh3-128:99aa",
                           "xxh3-128:99AA06D3014798D86001C324468D497F",
                           "xxh3-128:../../../../../../etc/passwd00000"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HashDigits(hash).status())) << hash;
  }
}

}  // namespace
}  // namespace trainyard::runtime
