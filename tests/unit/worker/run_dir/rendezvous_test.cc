#include "worker/run_dir/rendezvous.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"

namespace trainyard::run_dir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Rendezvous, AKeyIsWrittenOnce) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  EXPECT_TRUE(absl::IsNotFound(GetRendezvousKey(dir, "gloo.0").status()));
  const std::string value("\0\x01\xff", 3);
  ASSERT_TRUE(SetRendezvousKey(dir, "gloo.0", value).ok());
  EXPECT_EQ(GetRendezvousKey(dir, "gloo.0").value(), value);
  EXPECT_TRUE(SetRendezvousKey(dir, "gloo.0", value).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(SetRendezvousKey(dir, "gloo.0", "other")));
  EXPECT_EQ(GetRendezvousKey(dir, "gloo.0").value(), value);
}

TEST(Rendezvous, ListsOnlyWholeKeys) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  EXPECT_THAT(ListRendezvousKeys(dir).value(), IsEmpty());
  ASSERT_TRUE(SetRendezvousKey(dir, "b", "1").ok());
  ASSERT_TRUE(SetRendezvousKey(dir, "a", "2").ok());
  ASSERT_TRUE(ReplaceFile(dir.RendezvousDir() + "/c.tmp.12", "half").ok());
  EXPECT_THAT(ListRendezvousKeys(dir).value(), ElementsAre("a", "b"));
}

TEST(Rendezvous, KeysCannotLeaveTheFolder) {
  const RunDir dir("/does/not/exist");
  for (const char* key : {"", ".", "..", "a/b", "../a", "a b", "a\n", "x.tmp.7"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SetRendezvousKey(dir, key, "v"))) << key;
    EXPECT_TRUE(absl::IsInvalidArgument(GetRendezvousKey(dir, key).status())) << key;
  }
  EXPECT_FALSE(CheckRendezvousKey(std::string(201, 'a')).ok());
  EXPECT_TRUE(CheckRendezvousKey(std::string(200, 'a')).ok());
}

TEST(Rendezvous, LargeValuesAreRefused) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  EXPECT_TRUE(SetRendezvousKey(dir, "a", std::string(64 << 10, 'x')).ok());
  EXPECT_EQ(GetRendezvousKey(dir, "a")->size(), 64U << 10);
  EXPECT_TRUE(
      absl::IsInvalidArgument(SetRendezvousKey(dir, "b", std::string((64 << 10) + 1, 'x'))));
}

}  // namespace
}  // namespace trainyard::run_dir
