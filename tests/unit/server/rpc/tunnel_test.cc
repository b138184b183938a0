// Tests the frames of tunnels, which come from users and from workers, and the table of tunnels.
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/rpc/tunnel_frames.h"
#include "server/rpc/tunnel_stream.h"
#include "server/rpc/tunnels.h"

namespace trainyard::rpc {
namespace {

v1::TunnelOpen Exec(int words) {
  v1::TunnelOpen open;
  open.set_job("jobs/1");
  open.mutable_command();
  for (int i = 0; i < words; ++i) open.mutable_command()->add_words(absl::StrCat("word", i));
  return open;
}

bool IsAccepted(const v1::TunnelOpen& open) {
  RequestCheck check;
  CheckOpen(open, check);
  return check.ok();
}

TEST(TunnelFrames, RequestsHaveLimits) {
  EXPECT_TRUE(IsAccepted(Exec(0)));
  EXPECT_TRUE(IsAccepted(Exec(kCommandWordsMax)));
  EXPECT_FALSE(IsAccepted(Exec(kCommandWordsMax + 1)));
  v1::TunnelOpen open = Exec(1);
  open.mutable_command()->set_words(0, std::string(kCommandBytesMax - 1, 'x'));
  EXPECT_TRUE(IsAccepted(open));
  open.mutable_command()->set_words(0, std::string(kCommandBytesMax, 'x'));
  EXPECT_FALSE(IsAccepted(open));
  open.mutable_command()->set_words(0, std::string("a\0b", 3));
  EXPECT_FALSE(IsAccepted(open));
  open.mutable_command()->set_words(0, "");
  EXPECT_FALSE(IsAccepted(open));
  open = Exec(1);
  open.mutable_command()->set_term("xterm\x1b[2J");
  EXPECT_FALSE(IsAccepted(open));
  open = Exec(1);
  open.mutable_command()->mutable_terminal()->set_columns(80);
  EXPECT_FALSE(IsAccepted(open)) << "there are no rows";
  open.set_rank(-1);
  EXPECT_FALSE(IsAccepted(open));
  for (const int port : {-1, 0, 65536}) {
    open.set_port(port);
    EXPECT_FALSE(IsAccepted(open)) << port;
  }
  open.set_rank(0);
  open.set_port(65535);
  EXPECT_TRUE(IsAccepted(open));
  open.set_job("anna");
  EXPECT_FALSE(IsAccepted(open));
  EXPECT_FALSE(IsAccepted(v1::TunnelOpen()));
}

TEST(TunnelFrames, AMistakeInManyWordsIsToldOnce) {
  v1::TunnelOpen open = Exec(0);
  for (int i = 0; i < 100; ++i) open.mutable_command()->add_words(std::string(1, '\0'));
  RequestCheck check;
  CheckOpen(open, check);
  EXPECT_EQ(GetFieldViolations(check.Take()).size(), 1U);
}

TEST(TunnelFrames, EachSideMaySendItsOwn) {
  v1::TunnelFrame frame;
  EXPECT_FALSE(CheckFrameOfUser(frame).ok());
  EXPECT_FALSE(CheckFrameOfWorker(frame).ok());
  frame.set_input("bytes");
  EXPECT_TRUE(CheckFrameOfUser(frame).ok());
  EXPECT_FALSE(CheckFrameOfWorker(frame).ok());
  frame.set_output("bytes");
  EXPECT_FALSE(CheckFrameOfUser(frame).ok());
  EXPECT_TRUE(CheckFrameOfWorker(frame).ok());
  frame.set_grant(0);
  EXPECT_FALSE(CheckFrameOfWorker(frame).ok());
  for (const int signal : {-1, 0, 65}) {
    frame.set_signal(signal);
    EXPECT_FALSE(CheckFrameOfUser(frame).ok());
  }
  frame.mutable_exit();
  EXPECT_FALSE(CheckFrameOfUser(frame).ok());
  *frame.mutable_open() = Exec(1);
  EXPECT_FALSE(CheckFrameOfUser(frame).ok()) << "it is the first alone";
  EXPECT_FALSE(CheckFrameOfWorker(frame).ok());
}

TEST(TunnelFrames, FramesHaveALimit) {
  v1::TunnelFrame frame;
  frame.set_input(std::string(kTunnelFrameBytesMax, 'x'));
  EXPECT_EQ(ErrorReason(CheckFrameOfUser(frame)), "BAD_TUNNEL_FRAME");
  frame.set_input(std::string(kTunnelFrameBytesMax / 2, 'x'));
  EXPECT_TRUE(CheckFrameOfUser(frame).ok());
}

TEST(TunnelFrames, AnyBytesAreSurvived) {
  uint32_t state = 7;
  int parsed = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes;
    for (uint32_t size = state % 24; size > 0; --size) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(state >> 24);
    }
    state = state * 1664525 + 1013904223;
    v1::TunnelFrame frame;
    if (!frame.ParseFromString(bytes)) continue;
    ++parsed;
    (void)CheckFrameOfUser(frame);
    (void)CheckFrameOfWorker(frame);
    (void)StatusOf(frame.failure());
    RequestCheck check;
    CheckOpen(frame.open(), check);
    (void)DescribeOpen(frame.open());
  }
  EXPECT_GT(parsed, 100);
}

TEST(TunnelFrames, TextsOfAWorkerAreCutAndCleaned) {
  v1::TunnelFailure failure;
  failure.set_reason("not a reason");
  failure.set_message(std::string(5000, 'x') + "\x1b[2J");
  const absl::Status status = StatusOf(failure);
  EXPECT_EQ(ErrorReason(status), "TUNNEL_FAILED");
  EXPECT_LE(status.message().size(), 1000U);
  failure.set_reason("CANNOT_CONNECT");
  failure.set_message("a\x1b[2J");
  EXPECT_EQ(ErrorReason(StatusOf(failure)), "CANNOT_CONNECT");
  EXPECT_EQ(StatusOf(failure).message(), "a?[2J");
}

// An end that nobody calls.
class IdleEnd : public TunnelStream {
 public:
  void TakeFirst(v1::TunnelFrame) override {}
  absl::Status Check(const v1::TunnelFrame&) const override { return absl::OkStatus(); }
  absl::Status EndOfOther(const absl::Status& own) const override { return own; }
  void OnGone() override {}
};

Tunnel TunnelOf(const std::string& user, const std::string& worker) {
  return {user, worker, AttemptId{JobId{1}, 1}, 5, 0, Exec(1)};
}

v1::TunnelClaim Claim(const std::string& id) {
  v1::TunnelClaim claim;
  claim.set_tunnel(id);
  claim.set_attempt("jobs/1/attempts/1");
  claim.set_fencing_token(5);
  return claim;
}

TEST(Tunnels, ATunnelIsClaimedOnceAndByItsWorkerAlone) {
  Tunnels tunnels;
  const auto end = std::make_shared<IdleEnd>();
  ASSERT_TRUE(tunnels.Add("t", TunnelOf("user:anna", "alpha"), end).ok());
  EXPECT_EQ(tunnels.WaitingFor("alpha").size(), 1U);
  EXPECT_EQ(tunnels.WaitingFor("beta").size(), 0U);
  EXPECT_TRUE(absl::IsNotFound(tunnels.Claim("beta", Claim("t")).status()));
  v1::TunnelClaim stale = Claim("t");
  stale.set_fencing_token(4);
  EXPECT_TRUE(absl::IsNotFound(tunnels.Claim("alpha", stale).status()));
  const auto claimed = tunnels.Claim("alpha", Claim("t"));
  ASSERT_TRUE(claimed.ok());
  EXPECT_EQ(claimed->user, end);
  EXPECT_TRUE(absl::IsNotFound(tunnels.Claim("alpha", Claim("t")).status()));
  EXPECT_TRUE(tunnels.WaitingFor("alpha").empty());
  EXPECT_FALSE(tunnels.GiveUp("t")) << "it does not wait any more";
  EXPECT_EQ(tunnels.size(), 1U);
  tunnels.Remove("t");
  EXPECT_EQ(tunnels.size(), 0U);
}

TEST(Tunnels, NobodyHasMoreThanTheLimit) {
  Tunnels tunnels;
  const auto end = std::make_shared<IdleEnd>();
  for (size_t i = 0; i < kTunnelsOfUserMax; ++i) {
    ASSERT_TRUE(
        tunnels.Add(absl::StrCat(i), TunnelOf("user:anna", absl::StrCat("w", i)), end).ok());
  }
  EXPECT_EQ(ErrorReason(tunnels.Add("more", TunnelOf("user:anna", "w"), end)), "TOO_MANY_TUNNELS");
  EXPECT_LT(kTunnelsOfUserMax, kTunnelsOfWorkerMax) << "one user must leave room for others";
  for (size_t i = 0; i < kTunnelsOfWorkerMax; ++i) {
    ASSERT_TRUE(
        tunnels.Add(absl::StrCat("b", i), TunnelOf(absl::StrCat("user:", i), "alpha"), end).ok());
  }
  EXPECT_EQ(ErrorReason(tunnels.Add("more", TunnelOf("user:bert", "alpha"), end)),
            "TOO_MANY_TUNNELS");
  tunnels.Remove("b0");
  EXPECT_TRUE(tunnels.Add("more", TunnelOf("user:bert", "alpha"), end).ok());
  for (size_t i = 0; i < kUnclaimedStreamsOfClientMax; ++i) {
    ASSERT_TRUE(tunnels.BeginUnclaimed("uid:1").ok());
  }
  EXPECT_FALSE(tunnels.BeginUnclaimed("uid:1").ok());
  EXPECT_TRUE(tunnels.BeginUnclaimed("uid:2").ok());
  tunnels.EndUnclaimed("uid:1");
  EXPECT_TRUE(tunnels.BeginUnclaimed("uid:1").ok());
  for (size_t i = kUnclaimedStreamsOfClientMax + 1; i < kUnclaimedStreamsMax; ++i) {
    ASSERT_TRUE(tunnels.BeginUnclaimed(absl::StrCat("worker:", i)).ok());
  }
  EXPECT_FALSE(tunnels.BeginUnclaimed("uid:3").ok());
}

TEST(Tunnels, APortIsNotedOnceInAWhile) {
  Tunnels tunnels;
  EXPECT_TRUE(tunnels.IsForwardNew("anna jobs/1 port 1", absl::Seconds(1)));
  EXPECT_FALSE(tunnels.IsForwardNew("anna jobs/1 port 1", absl::Seconds(2)));
  EXPECT_TRUE(tunnels.IsForwardNew("anna jobs/1 port 2", absl::Seconds(2)));
  EXPECT_TRUE(tunnels.IsForwardNew("anna jobs/1 port 1", absl::Seconds(1) + kForwardAuditInterval));
}

}  // namespace
}  // namespace trainyard::rpc
