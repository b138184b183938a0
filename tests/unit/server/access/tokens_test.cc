#include "server/access/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/token_form.h"

namespace trainyard::access {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TokenRecord Draft(const std::string& user) {
  TokenRecord draft;
  draft.user = user;
  draft.expires = kNow + kTokenLifetime;
  return draft;
}

NewToken AddToken(TokenTable& table, TokenRecord draft) {
  NewToken made = MakeToken(std::move(draft), kNow);
  table.Add(made.record);
  return made;
}

std::string Reason(const absl::StatusOr<TokenRecord>& result) {
  return ErrorReason(result.status());
}

TEST(Tokens, ATokenHas256RandomBitsAndOnlyItsHashIsKept) {
  const NewToken one = MakeToken(Draft("anna"), kNow);
  const NewToken two = MakeToken(Draft("anna"), kNow);
  EXPECT_EQ(one.text.size(), kTokenBytes);
  EXPECT_TRUE(CheckTokenForm(one.text, kUserTokenPrefix).ok());
  EXPECT_NE(one.text, two.text);
  EXPECT_NE(one.record.id, two.record.id);
  EXPECT_EQ(one.record.id.size(), 12u);
  EXPECT_EQ(one.record.hash.size(), 32u);
  EXPECT_THAT(one.record.hash, Not(HasSubstr(one.text.substr(4))));
}

TEST(Tokens, AValidTokenSaysWhoItsOwnerIs) {
  TokenTable table;
  TokenRecord draft = Draft("anna");
  draft.scope = TokenScope::kRead;
  const NewToken made = AddToken(table, draft);
  const auto used = table.Use(made.text, TokenKind::kUser, kNow);
  ASSERT_TRUE(used.ok()) << used.status();
  EXPECT_EQ(used->user, "anna");
  EXPECT_EQ(used->scope, TokenScope::kRead);
  EXPECT_EQ(used->last_used, kNow);
}

TEST(Tokens, WhatIsNoTokenIsUnknown) {
  TokenTable table;
  const NewToken made = AddToken(table, Draft("anna"));
  const std::string& text = made.text;
  std::string wrong = text;
  wrong[10] = wrong[10] == 'A' ? 'B' : 'A';
  for (const std::string& bad : {std::string(), std::string("tyk_"), text.substr(0, 30), text + "A",
                                 wrong, "tyj_" + text.substr(4), absl::StrCat(" ", text),
                                 std::string(1 << 20, 'a'), std::string(47, '\0')}) {
    const auto used = table.Use(bad, TokenKind::kUser, kNow);
    EXPECT_TRUE(absl::IsUnauthenticated(used.status()));
    EXPECT_EQ(Reason(used), "TOKEN_UNKNOWN") << bad.substr(0, 60);
    EXPECT_THAT(used.status().message(), Not(HasSubstr(text.substr(4, 10))));
  }
  EXPECT_EQ(Reason(table.Use(text, TokenKind::kJoin, kNow)), "TOKEN_UNKNOWN");
}

TEST(Tokens, ATokenEndsWhenItExpires) {
  TokenTable table;
  const NewToken made = AddToken(table, Draft("anna"));
  EXPECT_TRUE(table.Use(made.text, TokenKind::kUser, made.record.expires - absl::Seconds(1)).ok());
  EXPECT_EQ(Reason(table.Use(made.text, TokenKind::kUser, made.record.expires)), "TOKEN_EXPIRED");
}

TEST(Tokens, ThoseThatHaveExpiredBetweenTwoTimesAreNamed) {
  TokenTable table;
  const TokenRecord made = AddToken(table, Draft("anna")).record;
  const absl::Time before = made.expires - absl::Seconds(1);
  EXPECT_TRUE(table.Expired(kNow, before).empty());
  const auto expired = table.Expired(before, made.expires);
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].id, made.id);
  EXPECT_TRUE(table.Expired(made.expires, made.expires + absl::Hours(1)).empty()) << "only once";
}

TEST(Tokens, ATokenEndsWhenItIsRevoked) {
  TokenTable table;
  const NewToken made = AddToken(table, Draft("anna"));
  const auto revoked = table.Revoke(made.record.id, kNow);
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(revoked->revoked, kNow);
  EXPECT_EQ(Reason(table.Use(made.text, TokenKind::kUser, kNow)), "TOKEN_REVOKED");
  const auto again = table.Revoke(made.record.id, kNow + absl::Hours(1));
  EXPECT_EQ(again->revoked, kNow) << "it was revoked then";
  EXPECT_TRUE(absl::IsNotFound(table.Revoke("nothing", kNow).status()));
}

TEST(Tokens, AJoinTokenIsUsedUpOnce) {
  TokenTable table;
  TokenRecord draft = Draft("root");
  draft.kind = TokenKind::kJoin;
  draft.worker = "gpu-1";
  draft.expires = kNow + kJoinTokenLifetime;
  const NewToken made = AddToken(table, draft);
  EXPECT_TRUE(CheckTokenForm(made.text, kJoinTokenPrefix).ok());
  std::vector<std::thread> joining;
  std::atomic<int> joined = 0;
  for (int i = 0; i < 8; ++i) {
    joining.emplace_back([&, i] {
      const auto used = table.UseUp(made.text, "gpu-1", absl::StrCat("key ", i), kNow);
      if (used.ok()) ++joined;
    });
  }
  for (std::thread& thread : joining) thread.join();
  EXPECT_EQ(joined, 1);
  EXPECT_EQ(Reason(table.UseUp(made.text, "gpu-1", "another key", kNow)), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(table.Use(made.text, TokenKind::kUser, kNow)), "TOKEN_UNKNOWN");
}

TEST(Tokens, TheWorkerThatHasJoinedComesAgainWithItsKeyUntilTheInvitationEnds) {
  TokenTable table;
  TokenRecord draft = Draft("root");
  draft.kind = TokenKind::kJoin;
  draft.expires = kNow + kJoinTokenLifetime;
  const NewToken made = AddToken(table, draft);
  const auto joined = table.UseUp(made.text, "gpu-1", "its key", kNow);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->worker, "gpu-1") << "an invitation for any name is now for that one";
  // The answer gets lost, and the server starts again.
  TokenTable after(table.List(""));
  const absl::Time last = draft.expires - absl::Seconds(1);
  EXPECT_TRUE(after.FindInvitation(made.text, last).ok());
  const auto again = after.UseUp(made.text, "gpu-1", "its key", last);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->revoked, kNow) << "it was used up then";
  EXPECT_EQ(Reason(after.UseUp(made.text, "gpu-1", "a thief's key", last)), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(after.UseUp(made.text, "gpu-2", "its key", last)), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(after.Use(made.text, TokenKind::kJoin, last)), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(after.FindInvitation(made.text, draft.expires)), "TOKEN_EXPIRED");
  EXPECT_EQ(Reason(after.UseUp(made.text, "gpu-1", "its key", draft.expires)), "TOKEN_EXPIRED");
  // Whoever revokes the invitation ends that too.
  ASSERT_TRUE(after.Revoke(made.record.id, last).ok());
  EXPECT_EQ(Reason(after.UseUp(made.text, "gpu-1", "its key", last)), "TOKEN_REVOKED");
  EXPECT_EQ(Reason(after.FindInvitation(made.text, last)), "TOKEN_REVOKED");
}

TEST(Tokens, AWorkerThatIsRemovedDoesNotJoinAgainWithItsOldInvitation) {
  TokenTable table;
  TokenRecord draft = Draft("root");
  draft.kind = TokenKind::kJoin;
  draft.expires = kNow + kJoinTokenLifetime;
  const NewToken made = AddToken(table, draft);
  ASSERT_TRUE(table.UseUp(made.text, "gpu-1", "its key", kNow).ok());
  EXPECT_TRUE(table.EndJoins("gpu-2").empty());
  const auto ended = table.EndJoins("gpu-1");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].joined_key, "");
  EXPECT_EQ(Reason(table.UseUp(made.text, "gpu-1", "its key", kNow)), "TOKEN_REVOKED");
  EXPECT_TRUE(table.EndJoins("gpu-1").empty());
}

TEST(Tokens, TheLastUseIsNotedInSteps) {
  TokenTable table;
  const NewToken made = AddToken(table, Draft("anna"));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(table.Use(made.text, TokenKind::kUser, kNow + absl::Seconds(i)).ok());
  }
  const auto used = table.TakeUsed();
  ASSERT_EQ(used.size(), 1u);
  EXPECT_EQ(used[0].last_used, kNow);
  EXPECT_TRUE(table.TakeUsed().empty());
  ASSERT_TRUE(table.Use(made.text, TokenKind::kUser, kNow + kLastUseStep).ok());
  EXPECT_EQ(table.TakeUsed().size(), 1u);
}

TEST(Tokens, AreListedByUserAndForgottenInTheEnd) {
  TokenTable table;
  const NewToken anna = AddToken(table, Draft("anna"));
  AddToken(table, Draft("ben"));
  EXPECT_EQ(table.List("").size(), 2u);
  ASSERT_EQ(table.List("anna").size(), 1u);
  EXPECT_EQ(table.List("anna")[0].id, anna.record.id);
  ASSERT_TRUE(table.Revoke(anna.record.id, kNow).ok());
  EXPECT_TRUE(table.Forget(kNow + kEndedTokenKept - absl::Seconds(1)).empty());
  EXPECT_THAT(table.Forget(kNow + kEndedTokenKept), ::testing::ElementsAre(anna.record.id));
  EXPECT_EQ(Reason(table.Use(anna.text, TokenKind::kUser, kNow)), "TOKEN_UNKNOWN");
  EXPECT_TRUE(absl::IsNotFound(table.Find(anna.record.id).status()));
}

TEST(Tokens, AUserHasALimitOfValidTokens) {
  TokenTable table;
  std::vector<NewToken> made;
  for (size_t i = 0; i < kTokensOfUserMax; ++i) {
    EXPECT_TRUE(table.CheckRoom("anna", kNow).ok());
    made.push_back(AddToken(table, Draft("anna")));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(table.CheckRoom("anna", kNow)));
  EXPECT_TRUE(table.CheckRoom("ben", kNow).ok());
  ASSERT_TRUE(table.Revoke(made[0].record.id, kNow).ok());
  EXPECT_TRUE(table.CheckRoom("anna", kNow).ok());
}

TEST(Tokens, AreFoundAgainAfterARestart) {
  TokenTable before;
  const NewToken made = AddToken(before, Draft("anna"));
  TokenTable after(before.List(""));
  EXPECT_TRUE(after.Use(made.text, TokenKind::kUser, kNow).ok());
}

TEST(TokenForm, SaysWhatIsWrongWithoutTheToken) {
  const std::string text = MakeToken(Draft("anna"), kNow).text;
  const auto message = [](absl::string_view token) {
    return std::string(CheckTokenForm(token, kUserTokenPrefix).message());
  };
  EXPECT_THAT(message(text.substr(0, 40)), HasSubstr("40 characters instead of 47"));
  EXPECT_THAT(message(""), HasSubstr("no token"));
  EXPECT_THAT(message("tyj_" + text.substr(4)), HasSubstr("lets a worker join"));
  EXPECT_THAT(message("password"), HasSubstr("does not begin with tyk_"));
  EXPECT_THAT(message(text.substr(0, 46) + "+"), HasSubstr("no letter"));
  EXPECT_THAT(message(text.substr(0, 46) + "+"), Not(HasSubstr(text.substr(4, 8))));
}

}  // namespace
}  // namespace trainyard::access
