// The members use the link of production, so that they come back with its pauses.
#include "tests/faults/crowd.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/rpc/channel.h"
#include "worker/agent/scheduler_link.h"

namespace trainyard::testing {

v1::CreateJobRequest WaitingJob(const std::string& request_id) {
  v1::CreateJobRequest request;
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name("waits");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  request.mutable_options()->set_wait_for_devices(true);
  request.set_request_id(request_id);
  return request;
}

class Crowd::Member {
 public:
  Member(const std::string& address, int number) : stub_(Connect(address)) {
    agent::WorkerIdentity identity;
    identity.name = absl::StrCat("crowd-", number);
    identity.uid = absl::StrCat("uid-", number);
    identity.hostname = "crowd";
    identity.address = "127.0.0.1";
    link_.emplace(*stub_, std::move(identity), std::vector<agent::Device>(), session_,
                  *Clock::Real(), *Rng::Real(),
                  [this](const agent::Desired& desired) { Answer(desired); });
    link_->SetReport({}, /*urgent=*/false);
    link_->Start();
  }
  ~Member() { link_->Stop(); }

  absl::Duration heard() const { return absl::Nanoseconds(heard_ns_.load()); }

 private:
  static std::unique_ptr<v1::AgentService::Stub> Connect(const std::string& address) {
    auto channel = rpc::MakeChannel(address);
    TY_CHECK_OK(channel.status());
    return v1::AgentService::NewStub(*channel);
  }
  // This runs on the link's thread.
  void Answer(const agent::Desired& desired) {
    heard_ns_ = absl::ToInt64Nanoseconds(Clock::Real()->Uptime());
    agent::Report report;
    report.desired_serial = desired.serial;
    report.desired_revision = desired.revision;
    link_->SetReport(std::move(report), /*urgent=*/false);
  }

  std::unique_ptr<v1::AgentService::Stub> stub_;
  agent::Session session_;
  std::atomic<int64_t> heard_ns_ = 0;
  std::optional<agent::SchedulerLink> link_;
};

Crowd::Crowd(const std::string& address, int count) {
  for (int i = 0; i < count; ++i) members_.push_back(std::make_unique<Member>(address, i));
}

Crowd::~Crowd() = default;

int64_t Crowd::HeardSince(absl::Duration uptime) const {
  int64_t count = 0;
  for (const auto& member : members_) count += member->heard() > uptime ? 1 : 0;
  return count;
}

}  // namespace trainyard::testing
