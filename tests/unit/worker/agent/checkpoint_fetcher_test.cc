// Tests fetching checkpoints from a server in this process that breaks off or sends wrong bytes.
#include "worker/agent/checkpoint_fetcher.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/rpc/channel.h"
#include "fake_agent_service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::agent {
namespace {

constexpr AttemptId kId{{12}, 2};

class CheckpointFetcherTest : public ::testing::Test {
 protected:
  CheckpointFetcherTest() {
    server_.emplace(state_, JoinPath(folder_, "s"));
    auto channel = rpc::MakeChannel("unix:" + JoinPath(folder_, "s"));
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
    source_.name = "jobs/12/checkpoints/30";
    source_.step = 30;
    for (const auto& [name, content] :
         {std::pair<std::string, std::string>{"model.safetensors", "0123456789"},
          {"state.json", "{}"}}) {
      source_.files.push_back({name, static_cast<int64_t>(content.size()), ContentHash(content)});
      absl::MutexLock lock(&state_.mutex);
      state_.files[{30, name}] = content;
    }
  }

  std::string Target() const { return JoinPath(folder_, "step-30"); }
  absl::Status Fetch() { return FetchCheckpoint(*stub_, source_, Target(), FileOwner(), token_); }

  // Returns the result of a fetch in the background.
  absl::Status FetchInBackground() {
    bool done = false;
    CodeCache code(JoinPath(folder_, "state"), *Clock::Real());
    CheckpointFetcher fetcher(*stub_, code, *Clock::Real(), *Rng::Real(), [&] {
      absl::MutexLock lock(&state_.mutex);
      done = true;
    });
    fetcher.Begin(kId, {.checkpoint = source_, .checkpoint_folder = Target()});
    EXPECT_TRUE(state_.Wait([&] { return done; }));
    return fetcher.TakeDone().at(kId);
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  FakeServerState state_;
  std::optional<FakeAgentServer> server_;
  std::unique_ptr<v1::AgentService::Stub> stub_;
  ResumeSource source_;
  CancelToken token_;
};

TEST_F(CheckpointFetcherTest, MakesACompleteCheckpoint) {
  ASSERT_TRUE(Fetch().ok());
  const auto manifest = checkpoint::VerifyCheckpoint(Target());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->step, 30);
  EXPECT_EQ(*ReadFile(JoinPath(Target(), "model.safetensors")), "0123456789");
  EXPECT_TRUE(Fetch().ok()) << "a second time nothing is to be done";
}

TEST_F(CheckpointFetcherTest, ABrokenDownloadGoesOnWhereItStopped) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.take_at_most = 4;
  }
  EXPECT_EQ(Fetch().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(*ReadFile(JoinPath(Target() + ".partial", "model.safetensors")), "0123");
  EXPECT_FALSE(FileExists(Target()));
  EXPECT_TRUE(Fetch().ok());
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(Target()).ok());
}

TEST_F(CheckpointFetcherTest, WrongBytesLeaveNothingBehind) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{30, "model.safetensors"}] = "012345678X";
  }
  EXPECT_EQ(Fetch().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(FileExists(Target()));
  EXPECT_FALSE(FileExists(Target() + ".partial"));
}

TEST_F(CheckpointFetcherTest, ADamagedCopyIsReplacedByTheServersOne) {
  ASSERT_TRUE(Fetch().ok());
  ASSERT_TRUE(ReplaceFile(JoinPath(Target(), "model.safetensors"), "012345678X").ok());
  const absl::Status fetched = Fetch();
  EXPECT_TRUE(fetched.ok()) << fetched;
  EXPECT_EQ(*ReadFile(JoinPath(Target(), "model.safetensors")), "0123456789");
}

TEST_F(CheckpointFetcherTest, WhatTheServerFindsDamagedEndsTheFetchAtOnce) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{30, "model.safetensors"}] = "012345678X";
    state_.damage = "model.safetensors is rotten";
  }
  const absl::Status fetched = FetchInBackground();
  EXPECT_EQ(ErrorReason(fetched), "CHECKPOINT_DAMAGED");
  EXPECT_NE(fetched.message().find("'jobs/12/checkpoints/30'"), absl::string_view::npos) << fetched;
  EXPECT_NE(fetched.message().find("model.safetensors is rotten"), absl::string_view::npos);
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.verifications, 1);
}

TEST_F(CheckpointFetcherTest, WhatIsWholeOnTheServerIsTriedAgainAndThenIsNoDamageOfTheCheckpoint) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.files[{30, "model.safetensors"}] = "012345678X";
  }
  EXPECT_EQ(ErrorReason(FetchInBackground()), "CORRUPT_FILE");
  absl::MutexLock lock(&state_.mutex);
  EXPECT_EQ(state_.verifications, 3);
}

TEST_F(CheckpointFetcherTest, NamesThatLeaveTheFolderAreRefused) {
  source_.files[0].name = "../model.safetensors";
  EXPECT_EQ(Fetch().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CheckpointFetcherTest, InTheBackgroundItTriesUntilTheServerIsBack) {
  {
    absl::MutexLock lock(&state_.mutex);
    state_.unavailable = 2;
    state_.busy = 2;
  }
  int done = 0;
  CodeCache code(JoinPath(folder_, "state"), *Clock::Real());
  CheckpointFetcher fetcher(*stub_, code, *Clock::Real(), *Rng::Real(), [&] {
    absl::MutexLock lock(&state_.mutex);
    ++done;
  });
  fetcher.Begin(kId, {.checkpoint = source_, .checkpoint_folder = Target()});
  ASSERT_TRUE(state_.Wait([&] { return done == 1; }));
  EXPECT_TRUE(fetcher.TakeDone().at(kId).ok());
  EXPECT_TRUE(fetcher.TakeDone().empty());
}

TEST_F(CheckpointFetcherTest, ACheckpointThatIsNotThereIsNotFoundAndAFetchCanBeCancelled) {
  source_.name = "jobs/12/checkpoints/31";
  EXPECT_EQ(Fetch().code(), absl::StatusCode::kNotFound);
  server_.reset();
  CodeCache code(JoinPath(folder_, "state"), *Clock::Real());
  CheckpointFetcher fetcher(*stub_, code, *Clock::Real(), *Rng::Real(), [] {});
  fetcher.Begin(kId, {.checkpoint = source_, .checkpoint_folder = Target()});
  fetcher.Cancel(kId);
  EXPECT_TRUE(fetcher.TakeDone().empty());
}

}  // namespace
}  // namespace trainyard::agent
