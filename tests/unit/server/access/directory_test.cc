#include "server/access/directory.h"

#include <gtest/gtest.h>

namespace trainyard::access {
namespace {

Caller User(const std::string& name, Role role = Role::kSubmitter) {
  Caller caller;
  caller.user = name;
  caller.role = role;
  return caller;
}

TEST(Directory, JobsAreSeenByTheWholeLab) {
  const Directory directory;
  EXPECT_TRUE(directory.MaySee(User("bert"), "anna", ""));
  EXPECT_TRUE(directory.MaySee(User("bert"), "anna", "vision"));
  EXPECT_TRUE(directory.MaySubmitTo(User("bert"), "vision"));
}

TEST(Directory, JobsOfAPrivateProjectAreSeenByMembersOwnersAndOperators) {
  Directory directory;
  directory.SetProject({"vision", true, {"anna"}});
  EXPECT_TRUE(directory.MaySee(User("anna"), "carl", "vision")) << "she is a member";
  EXPECT_TRUE(directory.MaySee(User("carl"), "carl", "vision")) << "it is his own";
  EXPECT_TRUE(directory.MaySee(User("olga", Role::kOperator), "carl", "vision"));
  EXPECT_FALSE(directory.MaySee(User("bert"), "carl", "vision"));
  EXPECT_TRUE(directory.MaySee(User("bert"), "carl", "speech")) << "it is another project";
}

TEST(Directory, OnlyMembersSubmitToAPrivateProject) {
  Directory directory;
  directory.SetProject({"vision", true, {"anna"}});
  EXPECT_TRUE(directory.MaySubmitTo(User("anna"), "vision"));
  EXPECT_TRUE(directory.MaySubmitTo(User("olga", Role::kOperator), "vision"));
  EXPECT_FALSE(directory.MaySubmitTo(User("carl"), "vision"));
  directory.DeleteProject("vision");
  EXPECT_TRUE(directory.MaySubmitTo(User("carl"), "vision"));
}

TEST(Directory, OwnersAndOperatorsChangeJobs) {
  EXPECT_TRUE(MayChange(User("anna"), "anna"));
  EXPECT_FALSE(MayChange(User("bert"), "anna"));
  EXPECT_TRUE(MayChange(User("olga", Role::kOperator), "anna"));
}

TEST(Directory, RolesAreThoseThatWereSetLast) {
  Directory directory;
  EXPECT_EQ(directory.RoleOf("anna"), std::nullopt);
  directory.SetUser({"anna", Role::kOperator, "root", 1});
  directory.SetUser({"anna", Role::kViewer, "root", 2});
  EXPECT_EQ(directory.RoleOf("anna"), Role::kViewer);
  EXPECT_EQ(directory.users().size(), 1U);
  directory.DeleteUser("anna");
  EXPECT_EQ(directory.RoleOf("anna"), std::nullopt);
}

}  // namespace
}  // namespace trainyard::access
