#include "common/base/labels.h"

#include <string>

#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(Labels, AreAKeyAndAValue) {
  EXPECT_EQ(ParseLabel("zone=a")->first, "zone");
  EXPECT_EQ(ParseLabel("zone=a")->second, "a");
  EXPECT_EQ(ParseLabel("lab.org/rack-no_1=")->second, "");
  EXPECT_EQ(ParseLabel("flags=a=b")->second, "a=b");
  EXPECT_TRUE(ParseLabel(std::string(63, 'k') + "=" + std::string(63, 'v')).ok());
}

TEST(Labels, OfAnotherFormAreRefused) {
  for (const std::string text :
       {"", "zone", "=a", "Zone=a", "-zone=a", "zo ne=a", "zone=\n", "zone=\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseLabel(text).status())) << text;
  }
  EXPECT_FALSE(ParseLabel(std::string(64, 'k') + "=a").ok());
  EXPECT_FALSE(ParseLabel("k=" + std::string(64, 'v')).ok());
}

}  // namespace
}  // namespace trainyard
