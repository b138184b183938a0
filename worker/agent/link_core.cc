// Keeps sessions, sequence numbers, leases and pauses of the link to the scheduler.
#include "worker/agent/link_core.h"

#include <algorithm>
#include <utility>

#include "common/base/errors.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kReconnectFirst = absl::Milliseconds(50);
constexpr absl::Duration kReconnectLast = absl::Seconds(3);
constexpr absl::Duration kSyncTimeout = absl::Seconds(10);

bool SomethingRuns(const Report& report) {
  return std::any_of(report.attempts.begin(), report.attempts.end(), [](const auto& attempt) {
    return attempt.state != ReportedAttempt::State::kExited;
  });
}

bool IsUnknownSession(const absl::Status& status) {
  return ErrorReason(status) == "UNKNOWN_SESSION";
}

}  // namespace

LinkCore::LinkCore(std::vector<Device> devices, Session& session, Rng& rng,
                   absl::Duration progress_interval)
    : devices_(std::move(devices)),
      progress_interval_(progress_interval),
      session_(session),
      backoff_(kReconnectFirst, kReconnectLast, rng) {}

void LinkCore::SetReport(Report report, bool urgent) {
  report_ = std::move(report);
  has_urgent_news_ = has_urgent_news_ || urgent;
}

LinkCore::Step LinkCore::Next() {
  if (pause_.has_value()) {
    const Pause pause{*pause_};
    pause_.reset();
    return pause;
  }
  // The first report tells the server what survived, so nothing is sent before it.
  if (!report_.has_value()) return AwaitReport{};
  if (report_->desired_serial < serial_) return AwaitReport{};
  std::string session = session_.Get();
  if (session.empty()) return Register{CurrentDevices(), kSyncTimeout};
  return MakeSync(std::move(session));
}

// Returns the devices with the health of the last report. A device that somebody else uses is never
// offered, not even at first.
std::vector<Device> LinkCore::CurrentDevices() const {
  std::vector<Device> devices = devices_;
  for (Device& device : devices) {
    for (const Device& changed : report_->changed_devices) {
      if (changed.name == device.name) device = changed;
    }
  }
  return devices;
}

LinkCore::Sync LinkCore::MakeSync(std::string session) {
  is_prompt_ = has_urgent_news_;
  has_urgent_news_ = false;
  if (!sent_.has_value() || *sent_ != *report_) {
    sent_ = *report_;
    ++sequence_;
  }
  Sync sync;
  sync.session = std::move(session);
  sync.sequence = sequence_;
  // Until the server has been heard once in this session, any answer is news.
  sync.desired_revision = answers_heard_ > 0 ? report_->desired_revision : 0;
  sync.answers_heard = answers_heard_;
  if (!is_prompt_) {
    sync.max_wait =
        SomethingRuns(*report_) ? std::min(sync_interval_, progress_interval_) : sync_interval_;
  }
  sync.report = *sent_;
  sync.timeout = kSyncTimeout + sync_interval_;
  return sync;
}

void LinkCore::Registered(std::string session, absl::Duration lease_duration,
                          absl::Duration sync_interval) {
  lease_duration_ = lease_duration;
  sync_interval_ = sync_interval;
  sent_.reset();
  sequence_ = 0;
  answers_heard_ = 0;
  backoff_.Reset();
  session_.Set(std::move(session));
}

Desired LinkCore::Answered(Desired desired, absl::Duration sent_at) {
  backoff_.Reset();
  ++answers_heard_;
  // The server counts the lease from when the report arrived, which is later.
  desired.lease_expire_uptime = sent_at + lease_duration_;
  desired.serial = ++serial_;
  return desired;
}

void LinkCore::Failed(const absl::Status& status, const std::string& session) {
  if (IsUnknownSession(status)) {
    session_.Forget(session);
    // A server that has restarted is registered with at once.
    if (!session.empty()) return;
  }
  pause_ = backoff_.Next();
}

}  // namespace trainyard::agent
