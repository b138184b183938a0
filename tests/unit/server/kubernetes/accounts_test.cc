// Tests the rules about service accounts.
#include "server/kubernetes/accounts.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

namespace trainyard::kubernetes {
namespace {

TEST(AccountsTest, RulesAreRead) {
  EXPECT_EQ(*ParseUserRule("ml:builder"), (UserRule{{"ml", "builder"}, ""}));
  EXPECT_EQ(*ParseUserRule("ml:builder.v2=anna"), (UserRule{{"ml", "builder.v2"}, "anna"}));
  EXPECT_EQ(*ParseUserRule("ml:*"), (UserRule{{"ml", "*"}, ""}));
  EXPECT_EQ(*ParseAccount("trainyard:trainyard-worker"),
            (Account{"trainyard", "trainyard-worker"}));
}

TEST(AccountsTest, WhatIsNoRuleIsRefused) {
  for (const char* text :
       {"", "ml", ":builder", "ml:", "*:builder", "*:*", "ml:*=anna", "ml:a:b", "ML:builder",
        "ml.x:builder", "ml:builder=", "ml:builder=a b", "ml:builder=../x", "ml:b/c"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseUserRule(text).status())) << text;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(ParseUserRule(absl::StrCat("ml:b=", std::string(65, 'u'))).status()));
  for (const char* text : {"trainyard", "trainyard:*", "trainyard:w=x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAccount(text).status())) << text;
  }
}

TEST(AccountsTest, OnlyServiceAccountsAreAccounts) {
  EXPECT_EQ(*AccountOfUser("system:serviceaccount:ml:builder"), (Account{"ml", "builder"}));
  for (const char* user : {"", "anna", "system:serviceaccount:", "system:serviceaccount:ml",
                           "system:serviceaccount:ml:", "system:serviceaccount:ml:a:b",
                           "system:node:node-1", "ml:builder"}) {
    EXPECT_EQ(AccountOfUser(user), std::nullopt) << user;
  }
}

TEST(AccountsTest, TheFirstRuleThatFitsNamesTheUser) {
  const std::vector<UserRule> rules = {{{"ml", "builder"}, "anna"}, {{"ml", "*"}, ""}};
  EXPECT_EQ(*UserOf({"ml", "builder"}, rules), "anna");
  EXPECT_EQ(*UserOf({"ml", "nightly"}, rules), "nightly@ml");
  EXPECT_EQ(ErrorReason(UserOf({"web", "builder"}, rules).status()), "ACCOUNT_NOT_PERMITTED");
  EXPECT_EQ(ErrorReason(UserOf({"ml", "builder"}, {}).status()), "ACCOUNT_NOT_PERMITTED");
  EXPECT_EQ(ErrorReason(UserOf({"ml", std::string(62, 'a')}, rules).status()),
            "ACCOUNT_NAME_TOO_LONG");
  EXPECT_TRUE(UserOf({"ml", std::string(61, 'a')}, rules).ok());
}

TEST(AccountsTest, WorkersNeedAnAccountThatIsNamed) {
  const std::vector<Account> rules = {{"trainyard", "trainyard-worker"}};
  EXPECT_TRUE(CheckMayBeWorker({"trainyard", "trainyard-worker"}, rules).ok());
  for (const Account& other :
       {Account{"ml", "trainyard-worker"}, Account{"trainyard", "default"}}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckMayBeWorker(other, rules))) << other.Text();
  }
}

TEST(AccountsTest, TheUrlIsThatOfTheEnvironment) {
  EXPECT_EQ(ApiUrl("10.0.0.1", "443"), "https://10.0.0.1:443");
  EXPECT_EQ(ApiUrl("fd00::1", "6443"), "https://[fd00::1]:6443");
  EXPECT_EQ(ApiUrl("", "443"), "");
  EXPECT_EQ(ApiUrl("10.0.0.1", ""), "");
}

}  // namespace
}  // namespace trainyard::kubernetes
