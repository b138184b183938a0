// Tests to which addresses the server sends, and to which it never does.
#include "server/notify/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sys/un.h>

#include "common/base/errors.h"

namespace trainyard::notify {
namespace {

using ::testing::HasSubstr;

AddressRules Rules(const std::string& webhooks, const std::string& mail = "on") {
  return {*ParseHostRule(webhooks), *ParseHostRule(mail)};
}

TEST(Addresses, WebhooksOfOtherHostsAreAllowed) {
  for (const char* url : {"https://chat.lab.example/hooks/7", "http://10.1.2.3:8065/hooks/x?y=1",
                          "https://hooks.slack.com/services/T0/B0/xyz", "http://[2001:db8::1]/a"}) {
    EXPECT_TRUE(CheckWebhook(url, Rules("on")).ok()) << url;
  }
}

TEST(Addresses, AddressesThatOnlyTheServerReachesAreForbidden) {
  for (const char* url :
       {"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:7070/", "http://localhost/",
        "http://localhost./", "http://0.0.0.0/", "http://[::1]/", "http://[::]/",
        "http://[::ffff:169.254.169.254]/", "http://[::ffff:127.0.0.1]/", "http://[fe80::1]/",
        "http://[64:ff9b::a9fe:a9fe]/", "http://[fd00:ec2::254]/", "http://100.100.100.200/",
        "http://224.0.0.1/", "http://168.63.129.16/", "http://0x7f000001/", "http://2130706433/",
        "http://127.1/"}) {
    EXPECT_EQ(ErrorReason(CheckWebhook(url, Rules("on"))), "NOTIFY_FORBIDDEN") << url;
  }
}

TEST(Addresses, TheAdministratorMayNameThisHostButNoLinkLocalAddress) {
  EXPECT_TRUE(CheckWebhook("http://127.0.0.1:9/", Rules("127.0.0.1")).ok());
  EXPECT_TRUE(CheckWebhook("http://localhost:9/", Rules("localhost")).ok());
  EXPECT_EQ(ErrorReason(CheckWebhook("http://169.254.169.254/", Rules("169.254.169.254"))),
            "NOTIFY_FORBIDDEN");
}

TEST(Addresses, AListAllowsItsHostsAndNamesBelowADot) {
  const AddressRules rules = Rules("chat.lab.example,.slack.com");
  EXPECT_TRUE(CheckWebhook("https://CHAT.lab.example/x", rules).ok());
  EXPECT_TRUE(CheckWebhook("https://hooks.slack.com/x", rules).ok());
  for (const char* url : {"https://evil.example/", "https://slack.com.evil.example/",
                          "https://notslack.com/", "https://xchat.lab.example/"}) {
    EXPECT_EQ(ErrorReason(CheckWebhook(url, rules)), "NOTIFY_FORBIDDEN") << url;
  }
  EXPECT_EQ(ErrorReason(CheckWebhook("https://chat.lab.example/", Rules("off"))),
            "NOTIFY_FORBIDDEN");
  EXPECT_FALSE(ParseHostRule("on,off/").ok());
  EXPECT_FALSE(ParseHostRule("").ok());
}

TEST(Addresses, WhatIsNoUrlIsRefused) {
  for (const char* url : {"", "chat", "ftp://a/b", "file:///etc/passwd", "gopher://a/", "https://",
                          "https://a b/", "https://a/\nHost: b", "https://anna:word@a/"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckWebhook(url, Rules("on")))) << url;
  }
}

TEST(Addresses, AnAddressThatANameResolvesToIsJudgedByItself) {
  sockaddr_in metadata{};
  metadata.sin_family = AF_INET;
  inet_pton(AF_INET, "169.254.169.254", &metadata.sin_addr);
  const auto& address = reinterpret_cast<const sockaddr&>(metadata);
  EXPECT_THAT(WhyForbidden(address, "harmless.example", *ParseHostRule("harmless.example")),
              HasSubstr("one link"));
  sockaddr_un other{};
  other.sun_family = AF_UNIX;
  EXPECT_NE(WhyForbidden(reinterpret_cast<const sockaddr&>(other), "a", HostRule()), "");
}

TEST(Addresses, TheAddressesOfThisHostAreItsOwnUnderAnyName) {
  ifaddrs* first = nullptr;
  ASSERT_EQ(getifaddrs(&first), 0);
  int seen = 0;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    ++seen;
    EXPECT_THAT(WhyForbidden(*entry->ifa_addr, "harmless.example", HostRule()),
                HasSubstr("own host"));
    EXPECT_EQ(WhyForbidden(*entry->ifa_addr, "lab", *ParseHostRule("lab")), "");
  }
  freeifaddrs(first);
  if (seen == 0) GTEST_SKIP() << "this host has no address";
}

TEST(Addresses, MailGoesToPlainAddressesOnly) {
  EXPECT_TRUE(CheckMail("anna.b+jobs@lab.example", Rules("on")).ok());
  for (const char* address :
       {"", "anna", "@lab", "anna@", "a@b@c", "anna@lab.example\nBcc: eve@x", "anna@lab,eve@x",
        "\"a b\"@lab", "anna@lab.example>", "-oQ/tmp@lab", "anna\r@lab", "|sh@lab x",
        "anna%evil.example@lab", "evil!anna@lab", "|sh@lab", "/tmp/x@lab"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckMail(address, Rules("on")))) << address;
  }
  EXPECT_EQ(ErrorReason(CheckMail("anna@other.example", Rules("on", "lab.example"))),
            "NOTIFY_FORBIDDEN");
}

TEST(Addresses, APathIsNotShown) {
  EXPECT_EQ(ShownAddress("https://hooks.slack.com/services/T0/secret", ""),
            "https://hooks.slack.com/...");
  EXPECT_EQ(ShownAddress("http://[2001:db8::1]:80/k", ""), "http://[2001:db8::1]:80/...");
  EXPECT_EQ(ShownAddress("", "anna@lab"), "anna@lab");
}

}  // namespace
}  // namespace trainyard::notify
