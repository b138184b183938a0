// Runs the thread of the link to the scheduler. It asks the link core what is due, does it without
// holding a lock, and tells the core how it ended.
#include "worker/agent/scheduler_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/convert.h"

namespace trainyard::agent {

SchedulerLink::SchedulerLink(v1::AgentService::StubInterface& stub, WorkerIdentity identity,
                             std::vector<Device> devices, Session& session, Clock& clock, Rng& rng,
                             DesiredCallback on_desired)
    : stub_(stub),
      identity_(std::move(identity)),
      clock_(clock),
      on_desired_(std::move(on_desired)),
      core_(std::move(devices), session, rng) {}

SchedulerLink::~SchedulerLink() {
  Stop();
}

void SchedulerLink::Start() {
  thread_ = std::thread([this] { Run(); });
}

void SchedulerLink::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void SchedulerLink::SetReport(Report report, bool urgent) {
  absl::MutexLock lock(&mutex_);
  core_.SetReport(std::move(report), urgent);
  has_news_ = true;
  if (call_ != nullptr && call_interruptible_ && core_.is_interrupted()) call_->TryCancel();
}

void SchedulerLink::Run() {
  while (true) {
    LinkCore::Step step;
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
      has_news_ = false;
      step = core_.Next();
    }
    std::visit([this](const auto& due) { Do(due); }, step);
  }
}

void SchedulerLink::Do(const LinkCore::AwaitReport&) {
  absl::MutexLock lock(&mutex_);
  const auto is_woken = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || has_news_; };
  mutex_.Await(absl::Condition(&is_woken));
}

void SchedulerLink::Do(const LinkCore::Pause& pause) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stop_), pause.length);
}

// The call ends with CANCELLED if the daemon ends, or if urgent news interrupts it.
template <typename Call>
absl::Status SchedulerLink::Invoke(absl::Duration deadline, bool is_interruptible, Call call) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, deadline);
  {
    absl::MutexLock lock(&mutex_);
    // News that arrived after the call was made goes out with the next one.
    if (stop_ || (is_interruptible && core_.is_interrupted())) {
      return absl::CancelledError("there is news");
    }
    call_ = &context;
    call_interruptible_ = is_interruptible;
  }
  absl::Status status = rpc::FromGrpcStatus(call(&context));
  absl::MutexLock lock(&mutex_);
  call_ = nullptr;
  return status;
}

void SchedulerLink::Do(const LinkCore::Register& due) {
  v1::RegisterWorkerRequest request;
  request.set_worker(identity_.name);
  request.set_uid(identity_.uid);
  request.set_version(Version());
  request.set_hostname(identity_.hostname);
  request.set_address(identity_.address);
  for (const auto& [key, value] : identity_.labels) (*request.mutable_labels())[key] = value;
  request.set_run_as_user(identity_.run_as_user);
  if (identity_.host.cpus > 0) {
    request.mutable_host()->set_cpus(static_cast<int32_t>(identity_.host.cpus));
    request.mutable_host()->set_memory_bytes(identity_.host.memory_bytes);
  }
  for (const Device& device : due.devices) *request.add_devices() = ToProto(device);
  v1::RegisterWorkerResponse response;
  const absl::Status status = Invoke(due.timeout, false, [&](grpc::ClientContext* context) {
    return stub_.RegisterWorker(context, request, &response);
  });
  if (!status.ok()) {
    HandleFailure(status, "");
    return;
  }
  last_failure_.clear();
  LogInfo("registered", {{"worker", identity_.name}, {"session", response.session()}});
  const absl::Duration lease = response.has_lease_duration() ? FromProto(response.lease_duration())
                                                             : LinkCore::kDefaultLease;
  const absl::Duration interval = response.has_sync_interval() ? FromProto(response.sync_interval())
                                                               : LinkCore::kDefaultSyncInterval;
  absl::MutexLock lock(&mutex_);
  core_.Registered(response.session(), lease, interval);
}

void SchedulerLink::Do(const LinkCore::Sync& due) {
  v1::SyncWorkerRequest request;
  request.set_session(due.session);
  request.set_sequence(due.sequence);
  request.set_desired_revision(due.desired_revision);
  request.set_answers_heard(due.answers_heard);
  *request.mutable_max_wait() = ToProto(due.max_wait);
  for (const ReportedAttempt& attempt : due.report.attempts) {
    *request.add_attempts() = ToProto(attempt);
  }
  for (const Device& device : due.report.changed_devices) {
    *request.add_devices() = ToProto(device);
  }
  if (due.report.datasets != nullptr) *request.mutable_datasets() = ToProto(*due.report.datasets);
  for (const auto& [user, reason] : due.report.refused_users) {
    v1::RefusedUser& refused = *request.add_refused_users();
    refused.set_user(user);
    refused.set_reason(reason);
  }
  const bool leaves = due.report.leave_within > absl::ZeroDuration();
  if (leaves) *request.mutable_leave_within() = ToProto(due.report.leave_within);
  v1::SyncWorkerResponse response;
  const absl::Duration sent_at = clock_.Uptime();
  const absl::Status status = Invoke(due.timeout, true, [&](grpc::ClientContext* context) {
    return stub_.SyncWorker(context, request, &response);
  });
  if (absl::IsCancelled(status)) {
    absl::MutexLock lock(&mutex_);
    if (stop_ || core_.is_interrupted()) return;
  }
  absl::StatusOr<Desired> desired =
      status.ok() ? FromProto(response) : absl::StatusOr<Desired>(status);
  if (!desired.ok()) {
    HandleFailure(desired.status(), due.session);
    return;
  }
  last_failure_.clear();
  {
    absl::MutexLock lock(&mutex_);
    desired->knows_leaving = leaves;
    desired = core_.Answered(*std::move(desired), sent_at);
  }
  on_desired_(*std::move(desired));
}

// The failure is logged once, so that an outage of hours is one line.
void SchedulerLink::HandleFailure(const absl::Status& status, const std::string& session) {
  {
    absl::MutexLock lock(&mutex_);
    core_.Failed(status, session);
    if (stop_) return;
  }
  const std::string text =
      absl::StrCat(absl::StatusCodeToString(status.code()), ErrorReason(status));
  if (text == last_failure_) return;
  last_failure_ = text;
  LogWarning("cannot sync with the server; what runs keeps running",
             {{"error", std::string(status.ToString())}});
}

}  // namespace trainyard::agent
