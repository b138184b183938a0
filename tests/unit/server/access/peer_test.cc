#include "server/access/peer.h"

#include <gtest/gtest.h>

namespace trainyard::access {
namespace {

constexpr uint32_t kServerUid = 900;
constexpr uint32_t kAdmins = 50;
constexpr uint32_t kOperators = 51;

RoleMap Roles() {
  return {kServerUid, kAdmins, kOperators, Role::kViewer};
}

TEST(Peer, RootAndTheServersUserRunTheHost) {
  for (const uint32_t uid : {0U, kServerUid}) {
    const Peer peer = PeerOf({uid, {100}, "x"}, Roles());
    EXPECT_TRUE(peer.is_host);
    EXPECT_EQ(peer.role, Role::kAdmin);
    EXPECT_EQ(peer.role_source, RoleSource::kServer);
  }
}

TEST(Peer, GroupsGiveRolesAndTheGreatestCounts) {
  EXPECT_EQ(PeerOf({1000, {100, kOperators}, "olga"}, Roles()).role, Role::kOperator);
  const Peer both = PeerOf({1000, {kOperators, kAdmins}, "olga"}, Roles());
  EXPECT_EQ(both.role, Role::kAdmin);
  EXPECT_EQ(both.role_source, RoleSource::kGroup);
  EXPECT_FALSE(both.is_host);
}

TEST(Peer, EverybodyElseHasTheDefaultRole) {
  const Peer peer = PeerOf({1000, {100}, "anna"}, Roles());
  EXPECT_EQ(peer.role, Role::kViewer);
  EXPECT_EQ(peer.role_source, RoleSource::kDefault);
  EXPECT_EQ(peer.user, "anna");
}

TEST(Peer, AGroupThatWasNotNamedIsNobodys) {
  // 4294967295 is no number of a group, and must not be taken for "none".
  const RoleMap none = {kServerUid, -1, -1, Role::kSubmitter};
  EXPECT_EQ(PeerOf({1000, {4294967295U}, "anna"}, none).role, Role::kSubmitter);
}

}  // namespace
}  // namespace trainyard::access
