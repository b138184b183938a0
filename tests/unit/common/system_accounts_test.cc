#include "common/base/system_accounts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace trainyard {
namespace {

TEST(SystemAccounts, AreFoundByNameAndByNumber) {
  const auto root = FindSystemAccount("root");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->uid, 0U);
  EXPECT_EQ(FindSystemAccount(uid_t{0})->name, "root");
  const auto groups = GroupsOf(*root);
  EXPECT_EQ(std::count(groups.begin(), groups.end(), root->gid), 1);
  EXPECT_TRUE(absl::IsNotFound(FindSystemAccount("no-such-user").status()));
  EXPECT_TRUE(absl::IsNotFound(FindSystemAccount(uid_t{3'123'456'789U}).status()));
}

TEST(SystemAccounts, AUserWithoutANameIsANumber) {
  EXPECT_EQ(UserName(0), "root");
  EXPECT_EQ(UserName(3'123'456'789U), "3123456789");
  EXPECT_TRUE(FindGroup("root").ok());
  EXPECT_TRUE(absl::IsNotFound(FindGroup("no-such-group").status()));
}

}  // namespace
}  // namespace trainyard
