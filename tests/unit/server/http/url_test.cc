// Tests of the parts of addresses.
#include "server/http/url.h"

#include <gtest/gtest.h>

namespace trainyard::http {
namespace {

TEST(Url, PercentsAreDecoded) {
  EXPECT_EQ(PercentDecode("a%20b+c", true), "a b c");
  EXPECT_EQ(PercentDecode("a+b", false), "a+b");
  for (const char* bad : {"%", "%2", "%zz"}) {
    EXPECT_EQ(PercentDecode(bad, true), std::nullopt) << bad;
  }
}

TEST(Url, AQueryHasEachNameOnce) {
  EXPECT_EQ(ParseQuery("message=%7B%7D&encoding=json")->at("message"), "{}");
  EXPECT_TRUE(ParseQuery("")->empty());
  EXPECT_EQ(ParseQuery("a=1&a=2"), std::nullopt);
  EXPECT_EQ(ParseQuery("a=%x"), std::nullopt);
}

TEST(Url, OneFormOfARangeIsServed) {
  EXPECT_EQ(RangeBegin("bytes=100-"), 100);
  for (const char* other : {"", "bytes=-5", "bytes=1-2", "bytes=x-", "lines=1-"}) {
    EXPECT_EQ(RangeBegin(other), std::nullopt) << other;
  }
}

TEST(Url, AHostIsComparedWithoutItsPort) {
  EXPECT_EQ(HostOnly("Lab.Example:7070"), "lab.example");
  EXPECT_EQ(HostOnly("[::1]:7070"), "::1");
  EXPECT_EQ(HostOnly("[::1]"), "::1");
  EXPECT_TRUE(IsIpAddress("127.0.0.1"));
  EXPECT_TRUE(IsIpAddress("::1"));
  EXPECT_FALSE(IsIpAddress("127.0.0.1.evil.example"));
}

}  // namespace
}  // namespace trainyard::http
