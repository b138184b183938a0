#include "worker/agent/scheduler_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/convert.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kBackoffFirst = absl::Milliseconds(50);
constexpr absl::Duration kBackoffLast = absl::Seconds(3);
constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// While something runs, its progress is worth a report this often.
constexpr absl::Duration kProgressInterval = absl::Seconds(1);

bool SomethingRuns(const Report& report) {
  return std::any_of(report.attempts.begin(), report.attempts.end(), [](const auto& attempt) {
    return attempt.state != ReportedAttempt::State::kExited;
  });
}

}  // namespace

SchedulerLink::SchedulerLink(v1::AgentService::StubInterface& stub, WorkerIdentity identity,
                             std::vector<Device> devices, Session& session, Clock& clock, Rng& rng,
                             DesiredCallback on_desired)
    : stub_(stub),
      identity_(std::move(identity)),
      devices_(std::move(devices)),
      session_(session),
      clock_(clock),
      on_desired_(std::move(on_desired)),
      backoff_(kBackoffFirst, kBackoffLast, rng) {}

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

void SchedulerLink::SetReport(const Report& report, bool urgent) {
  absl::MutexLock lock(&mutex_);
  report_ = report;
  if (!urgent) return;
  interrupted_ = true;
  if (call_ != nullptr && call_interruptible_) call_->TryCancel();
}

void SchedulerLink::Run() {
  // The first report tells the server what survived; nothing is synced before it.
  WaitForReport(0);
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
    }
    const bool ok = session_.Get().empty() ? Register() : Sync();
    if (!ok) Pause(backoff_.Next());
  }
}

template <typename Call>
absl::Status SchedulerLink::Invoke(absl::Duration deadline, Call call) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, deadline);
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return absl::CancelledError("the daemon ends");
    call_ = &context;
  }
  const absl::Status status = rpc::FromGrpcStatus(call(&context));
  absl::MutexLock lock(&mutex_);
  call_ = nullptr;
  return status;
}

// With the health of the last report: a device in foreign use is never offered, not even at first.
std::vector<Device> SchedulerLink::CurrentDevices() {
  std::vector<Device> devices = devices_;
  absl::MutexLock lock(&mutex_);
  if (!report_.has_value()) return devices;
  for (Device& device : devices) {
    for (const Device& changed : report_->changed_devices) {
      if (changed.name == device.name) device = changed;
    }
  }
  return devices;
}

bool SchedulerLink::Register() {
  v1::RegisterWorkerRequest request;
  request.set_worker(identity_.name);
  request.set_uid(identity_.uid);
  request.set_version(Version());
  request.set_hostname(identity_.hostname);
  request.set_address(identity_.address);
  for (const auto& [key, value] : identity_.labels) (*request.mutable_labels())[key] = value;
  for (const Device& device : CurrentDevices()) *request.add_devices() = ToProto(device);
  v1::RegisterWorkerResponse response;
  const absl::Status status = Invoke(kCallTimeout, [&](grpc::ClientContext* context) {
    return stub_.RegisterWorker(context, request, &response);
  });
  if (!status.ok()) {
    HandleFailure(status, "");
    return false;
  }
  if (response.has_lease_duration()) lease_duration_ = FromProto(response.lease_duration());
  if (response.has_sync_interval()) sync_interval_ = FromProto(response.sync_interval());
  sent_.reset();
  sequence_ = 0;
  heard_ = false;
  last_failure_.clear();
  backoff_.Reset();
  session_.Set(response.session());
  LogInfo("registered", {{"worker", identity_.name}, {"session", response.session()}});
  return true;
}

void SchedulerLink::FillRequest(v1::SyncWorkerRequest& request) {
  absl::MutexLock lock(&mutex_);
  interrupted_ = false;
  if (!sent_.has_value() || *sent_ != *report_) {
    sent_ = *report_;
    ++sequence_;
  }
  // Until the server has been heard once in this session, any answer is news.
  request.set_desired_revision(heard_ ? report_->desired_revision : 0);
  const absl::Duration wait =
      SomethingRuns(*report_) ? std::min(sync_interval_, kProgressInterval) : sync_interval_;
  *request.mutable_max_wait() = ToProto(wait);
  request.set_sequence(sequence_);
  for (const ReportedAttempt& attempt : sent_->attempts) {
    *request.add_attempts() = ToProto(attempt);
  }
  for (const Device& device : sent_->changed_devices) *request.add_devices() = ToProto(device);
}

bool SchedulerLink::Sync() {
  const std::string session = session_.Get();
  v1::SyncWorkerRequest request;
  request.set_session(session);
  FillRequest(request);
  v1::SyncWorkerResponse response;
  const absl::Duration sent_at = clock_.Uptime();
  {
    absl::MutexLock lock(&mutex_);
    call_interruptible_ = true;
    // News that came between FillRequest and here goes out with the next call.
    if (interrupted_) return true;
  }
  const absl::Status status =
      Invoke(kCallTimeout + sync_interval_, [&](grpc::ClientContext* context) {
        {
          absl::MutexLock lock(&mutex_);
          if (interrupted_) context->TryCancel();
        }
        return stub_.SyncWorker(context, request, &response);
      });
  {
    absl::MutexLock lock(&mutex_);
    call_interruptible_ = false;
    if (absl::IsCancelled(status) && (interrupted_ || stop_)) return true;
  }
  if (!status.ok()) {
    HandleFailure(status, session);
    return ErrorReason(status) == "UNKNOWN_SESSION";
  }
  auto desired = FromProto(response);
  if (!desired.ok()) {
    HandleFailure(desired.status(), session);
    return false;
  }
  backoff_.Reset();
  last_failure_.clear();
  desired->lease_expire_uptime = sent_at + lease_duration_;
  desired->serial = ++serial_;
  heard_ = true;
  on_desired_(*std::move(desired));
  WaitForReport(serial_);
  return true;
}

// Says it once: an outage of hours is one line.
void SchedulerLink::HandleFailure(const absl::Status& status, const std::string& session) {
  if (ErrorReason(status) == "UNKNOWN_SESSION") session_.Forget(session);
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
  }
  const std::string text =
      absl::StrCat(absl::StatusCodeToString(status.code()), ErrorReason(status));
  if (text == last_failure_) return;
  last_failure_ = text;
  LogWarning("the server cannot be synced with; what runs goes on",
             {{"error", std::string(status.ToString())}});
}

// A report that has acted upon the answer `serial`; for 0 any report.
void SchedulerLink::WaitForReport(int64_t serial) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this, serial]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stop_ || (report_.has_value() && report_->desired_serial >= serial);
  };
  mutex_.Await(absl::Condition(&ready));
}

void SchedulerLink::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stop_), duration);
}

}  // namespace trainyard::agent
