// Tests the cache of code archives against a server in this process that is slow, silent or wrong.
#include "worker/agent/code_cache.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "common/tls/digest.h"
#include "fake_agent_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kJob[] = "jobs/12";
constexpr absl::Duration kSilence = absl::Milliseconds(400);

class CodeCacheTest : public ::testing::Test {
 protected:
  CodeCacheTest() : server_(state_, folder_.File("s")) {
    auto channel = rpc::MakeChannel("unix:" + folder_.File("s"));
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
  }

  void Send(std::vector<std::string> pieces, absl::Duration pause = absl::ZeroDuration()) {
    absl::MutexLock lock(&state_.mutex);
    state_.code[kJob] = std::move(pieces);
    state_.code_pause = pause;
  }
  static std::string DigestOf(const std::string& text) {
    tls::Sha256Hasher hasher;
    hasher.Update(text);
    return hasher.Text();
  }
  absl::Status Unpack(const std::string& digest) {
    CodeCache cache(folder_.path(), *Clock::Real(), CodeCache::kBytesMax, kSilence);
    return cache.Unpack(*stub_, {kJob, digest}, folder_.File("out"), FileOwner{}, token_);
  }
  std::vector<std::string> Kept() const {
    return ListDirectory(folder_.File("code")).value_or(std::vector<std::string>());
  }

  testing::TempDir folder_;
  FakeServerState state_;
  FakeAgentServer server_;
  std::unique_ptr<v1::AgentService::Stub> stub_;
  CancelToken token_;
};

TEST_F(CodeCacheTest, ASlowLineHasAsMuchTimeAsItNeeds) {
  Send({"a", "b", "c", "d"}, kSilence / 2);
  // It is no archive, as is found when all of it has come.
  const absl::Status unpacked = Unpack(DigestOf("abcd"));
  EXPECT_EQ(ErrorReason(unpacked), "CODE_REFUSED") << unpacked;
  ASSERT_EQ(Kept().size(), 1u);
  EXPECT_EQ(*ReadFile(JoinPath(folder_.File("code"), Kept()[0])), "abcd");
}

TEST_F(CodeCacheTest, AServerThatFallsSilentIsAskedAgainLater) {
  Send({"a", "b"}, absl::Minutes(10));
  const absl::Status unpacked = Unpack(DigestOf("ab"));
  EXPECT_TRUE(absl::IsUnavailable(unpacked)) << unpacked;
  EXPECT_THAT(std::string(unpacked.message()), HasSubstr("nothing more of the code of jobs/12"));
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(CodeCacheTest, WrongBytesLeaveNothingBehind) {
  Send({"wrong"});
  EXPECT_EQ(ErrorReason(Unpack(DigestOf("right"))), "CORRUPT_FILE");
  EXPECT_THAT(Kept(), IsEmpty());
  token_.Cancel();
  EXPECT_FALSE(Unpack(DigestOf("right")).ok());
  EXPECT_THAT(Kept(), IsEmpty());
}

TEST_F(CodeCacheTest, WhatADeadDaemonHasLeftIsRemovedAtTheStart) {
  TY_CHECK_OK(MakeDirectories(folder_.File("code")));
  folder_.Write("code/0123.partial", "half");
  folder_.Write("code/4567", "whole");
  const CodeCache cache(folder_.path(), *Clock::Real());
  EXPECT_THAT(Kept(), ElementsAre("4567"));
}

}  // namespace
}  // namespace trainyard::agent
