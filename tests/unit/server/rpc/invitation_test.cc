// Tests which invitations count for a user, and which end with their pilot.
#include "server/rpc/invitation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/store/memory_access_store.h"

namespace trainyard::rpc {
namespace {

class InvitationTest : public ::testing::Test {
 protected:
  // Returns the number of join tokens of such workers that are still good.
  int64_t Good(absl::string_view prefix) {
    int64_t good = 0;
    for (const access::TokenRecord& token : sign_in_.tokens.List("")) {
      if (!token.revoked.has_value() && absl::StartsWith(token.worker, prefix)) ++good;
    }
    return good;
  }

  SignIn sign_in_;
  store::MemoryAccessStore store_;
};

TEST_F(InvitationTest, ThoseOfPilotsCountForNoUser) {
  for (size_t i = 0; i < 2 * access::kTokensOfUserMax; ++i) {
    ASSERT_TRUE(InviteOfPilot(sign_in_, store_, absl::StrCat("ty-s1-lab-", i), absl::Hours(1)).ok())
        << i;
  }
  for (size_t i = 0; i < access::kTokensOfUserMax; ++i) {
    ASSERT_TRUE(Invite(sign_in_, store_, "root", "", absl::Hours(1)).ok()) << i;
  }
  EXPECT_EQ(Invite(sign_in_, store_, "root", "", absl::Hours(1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(InviteOfPilot(sign_in_, store_, "ty-s1-lab-x", absl::Hours(1)).ok());
}

TEST_F(InvitationTest, ThoseOfPilotsThatAreOverAreRevokedAndStayRevoked) {
  for (const char* worker : {"ty-s1-lab-1", "ty-s1-lab-2", "box"}) {
    ASSERT_TRUE(Invite(sign_in_, store_, "root", worker, absl::Hours(1)).ok());
  }
  RevokeInvitations(sign_in_, store_,
                    [](const std::string& worker) { return worker == "ty-s1-lab-1"; });
  EXPECT_EQ(Good("ty-s1-lab-1"), 0);
  EXPECT_EQ(Good("ty-s1-lab-2"), 1);
  EXPECT_EQ(Good("box"), 1);
  const auto tokens = store_.ListTokens();
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  for (const access::TokenRecord& token : *tokens) {
    EXPECT_EQ(token.revoked.has_value(), token.worker == "ty-s1-lab-1") << "as stored";
  }
}

}  // namespace
}  // namespace trainyard::rpc
