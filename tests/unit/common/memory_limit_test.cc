#include "common/base/memory_limit.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

TEST(AllowedMemory, IsKnown) {
  EXPECT_GT(AllowedMemory(), 0);
}

class CgroupMemoryLimitTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    const std::string file = JoinPath(folder_.path(), path);
    ASSERT_TRUE(MakeDirectories(file.substr(0, file.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(file, text).ok());
  }
  std::optional<int64_t> Limit(absl::string_view membership) {
    return CgroupMemoryLimit(membership, folder_.path());
  }
  const testing::TempDir folder_;
};

TEST_F(CgroupMemoryLimitTest, IsTheSmallestFromTheLeafToTheRoot) {
  Put("a/b/memory.max", "max\n");
  Put("a/memory.max", "4096\n");
  Put("memory.max", "8192\n");
  EXPECT_EQ(Limit("0::/a/b\n"), 4096);
  EXPECT_EQ(Limit("0::/\n"), 8192);
  // This is a path of the host that does not exist inside the container.
  EXPECT_EQ(Limit("0::/docker/123\n"), 8192);
}

TEST_F(CgroupMemoryLimitTest, KnowsTheFirstVersionToo) {
  Put("memory/job/memory.limit_in_bytes", "1000\n");
  Put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Limit("5:cpu,cpuacct:/other\n4:memory:/job\n0::/init\n"), 1000);
}

TEST_F(CgroupMemoryLimitTest, IsNothingWhereNoGroupHasOne) {
  Put("a/memory.max", "max\n");
  EXPECT_EQ(Limit("0::/a\n"), std::nullopt);
  EXPECT_EQ(Limit(""), std::nullopt);
  EXPECT_EQ(Limit("no cgroup at all\n"), std::nullopt);
}

}  // namespace
}  // namespace trainyard
