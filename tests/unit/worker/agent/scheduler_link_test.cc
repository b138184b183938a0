// Tests the thread of the link to the scheduler against a server in this process that holds syncs.
#include "worker/agent/scheduler_link.h"

#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "fake_agent_service.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::agent {
namespace {

class SchedulerLinkTest : public ::testing::Test {
 protected:
  SchedulerLinkTest() {
    auto channel = rpc::MakeChannel("unix:" + socket_);
    TY_CHECK_OK(channel.status());
    stub_ = v1::AgentService::NewStub(*channel);
    link_ = std::make_unique<SchedulerLink>(
        *stub_, WorkerIdentity{"w", "uid", "host", "127.0.0.1", {}}, std::vector<Device>{},
        session_, *Clock::Real(), *Rng::Real(), [this](const Desired& desired) {
          absl::MutexLock lock(&mutex_);
          ++answers_;
          report_.desired_serial = desired.serial;
          report_.desired_revision = 1;
          link_->SetReport(report_, false);
        });
  }
  ~SchedulerLinkTest() override { link_->Stop(); }

  int answers() {
    absl::MutexLock lock(&mutex_);
    return answers_;
  }

  testing::TempDir temp_dir_;
  const std::string socket_ = JoinPath(temp_dir_.path(), "s");
  FakeServerState state_;
  FakeAgentServer server_{state_, socket_};
  std::unique_ptr<v1::AgentService::Stub> stub_;
  Session session_;
  absl::Mutex mutex_;
  Report report_ ABSL_GUARDED_BY(mutex_);
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<SchedulerLink> link_;
};

// A job that writes a checkpoint every half second has urgent news before each answer.
TEST_F(SchedulerLinkTest, NewsThatComeFasterThanAnswersDoNotKeepTheLinkFromHearing) {
  {
    absl::MutexLock lock(&mutex_);
    report_.attempts.emplace_back();
    link_->SetReport(report_, false);
  }
  link_->Start();
  ASSERT_TRUE(testing::WaitUntil([this] { return answers() > 0; }, absl::Seconds(10)));
  const int enough = answers() + 10;
  const auto has_heard = [&] { return answers() >= enough; };
  for (int i = 1; i <= 60 && !testing::WaitUntil(has_heard, absl::Milliseconds(50)); ++i) {
    absl::MutexLock lock(&mutex_);
    report_.attempts[0].checkpoint_step = i;
    link_->SetReport(report_, true);
  }
  EXPECT_TRUE(has_heard());
}

}  // namespace
}  // namespace trainyard::agent
