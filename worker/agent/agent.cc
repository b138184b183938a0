#include "worker/agent/agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/processes.h"
#include "worker/agent/device_metrics.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::agent {
namespace {

// A turn at least this often.
constexpr absl::Duration kTurnIdle = absl::Seconds(2);
// A run directory that cannot be made: tried so often, then the attempt has failed here.
constexpr int kBeginTries = 3;
constexpr absl::Duration kBeginRetry = absl::Milliseconds(300);

// Nothing can be saved from a device that has failed; peers on others may want to say so.
constexpr absl::Duration kDeviceLostGrace = absl::Seconds(5);

// Whether a supervisor has the attempt's ranks, or is about to.
bool RunsHere(const Attempt& attempt) {
  return attempt.has_directory && attempt.assignment.has_value() && !attempt.exit.has_value() &&
         (attempt.local.phase == Phase::kLaunching || attempt.local.phase == Phase::kAlive);
}

// The rank that cannot begin for want of its device; the lowest where all devices are here.
int FirstWithoutDevice(const std::vector<DesiredRank>& ranks, const std::vector<Device>& devices) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&devices](const DesiredRank& rank) {
    return std::none_of(devices.begin(), devices.end(),
                        [&rank](const Device& device) { return device.name == rank.device; });
  });
  return found == ranks.end() ? ranks.front().rank : found->rank;
}

}  // namespace

Agent::Agent(AgentOptions options, v1::AgentService::StubInterface& stub, Nvml* nvml, Clock& clock,
             Rng& rng)
    : options_(std::move(options)),
      clock_(clock),
      watch_([]() -> std::optional<FileWatch> {
        auto watch = FileWatch::Create();
        if (!watch.ok()) return std::nullopt;
        return *std::move(watch);
      }()),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      attempts_(options_.settings, options_.devices, clock,
                watch_.has_value() ? &*watch_ : nullptr),
      fetcher_(stub, clock, rng, [this] { Wake(); }),
      streams_(stub, session_, rng, [this] { Wake(); }),
      checkpoints_(stub, session_, rng, [this] { Wake(); }),
      link_(stub, options_.identity, options_.devices, session_, clock, rng,
            [this](Desired desired) {
              {
                absl::MutexLock lock(&mutex_);
                inbox_ = std::move(desired);
              }
              Wake();
            }) {
  TY_CHECK(wake_.valid());
  if (nvml == nullptr) return;
  const std::string root = JoinPath(options_.settings.state_dir, "attempts");
  ProcessView view;
  view.is_ours = [root](int64_t pid) {
    return ProcessVariable(pid, "TRAINYARD_RUN_DIR").starts_with(root + "/");
  };
  view.is_visible = IsProcessVisible;
  view.describe = DescribeProcess;
  gpus_.emplace(options_.devices, *nvml, std::move(view));
}

Agent::~Agent() {
  Stop();
}

void Agent::Start() {
  attempts_.Adopt();
  streams_.Start();
  checkpoints_.Start();
  link_.Start();
  thread_ = std::thread([this] { Loop(); });
}

void Agent::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  link_.Stop();
  streams_.Stop();
  checkpoints_.Stop();
}

void Agent::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void Agent::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
    }
    Turn();
    pollfd fds[] = {{wake_.get(), POLLIN, 0}, {watch_.has_value() ? watch_->fd() : -1, POLLIN, 0}};
    // Rounded up: a turn that comes too early finds nothing due.
    const absl::Duration wait = absl::Ceil(NextTurn(), absl::Milliseconds(1));
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(wait)));
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
  }
}

absl::Duration Agent::NextTurn() const {
  absl::Duration next = std::min(kTurnIdle, attempts_.NextLook() - clock_.Uptime());
  if (!begin_tries_.empty()) next = std::min(next, kBeginRetry);
  if (gpus_.has_value()) next = std::min(next, devices_due_ - clock_.Uptime());
  return std::max(next, absl::ZeroDuration());
}

const DesiredAttempt* Agent::Wanted(AttemptId id) const {
  if (!desired_.has_value()) return nullptr;
  const auto found = desired_->attempts.find(id);
  return found == desired_->attempts.end() ? nullptr : &found->second;
}

void Agent::Turn() {
  TakeInbox();
  attempts_.Observe();
  TakeFetched();
  TakeUploads();
  std::vector<Action> actions = Reconcile(desired_, attempts_.Locals(), clock_.Uptime());
  // The next attempt of a device does not wait for the removal of the last one's folder.
  std::stable_partition(actions.begin(), actions.end(),
                        [](const Action& action) { return action.kind != Action::Kind::kRemove; });
  for (const Action& action : actions) Act(action);
  attempts_.Observe();
  SetTargets();
  LookAtDevices();
  SendReport();
}

void Agent::TakeInbox() {
  absl::MutexLock lock(&mutex_);
  if (!inbox_.has_value()) return;
  desired_ = *std::move(inbox_);
  inbox_.reset();
  std::erase_if(begin_tries_, [this](const auto& entry) { return Wanted(entry.first) == nullptr; });
}

void Agent::TakeFetched() {
  for (const auto& [id, status] : fetcher_.TakeDone()) {
    Attempt* attempt = attempts_.Find(id);
    const DesiredAttempt* wanted = Wanted(id);
    if (attempt == nullptr || attempt->local.phase != Phase::kPreparing) continue;
    // Otherwise it is abandoned in this turn.
    if (wanted == nullptr || wanted->action != DesiredAttempt::Action::kRun) continue;
    if (status.ok()) {
      Assign(id, *wanted);
    } else {
      begin_tries_[id].failed = kBeginTries;
      BeginFailed(id, *wanted, status);
    }
  }
}

void Agent::TakeUploads() {
  for (const auto& [id, attempt] : attempts_.all()) {
    if (!attempt.has_directory) continue;
    Attempt* mutable_attempt = attempts_.Find(id);
    const CheckpointUploader::Progress checkpoints = checkpoints_.ProgressOf(id);
    mutable_attempt->local.committed = checkpoints.committed;
    mutable_attempt->local.drained =
        attempt.exit.has_value() && checkpoints.done && streams_.ProgressOf(id).done;
  }
}

void Agent::Act(const Action& action) {
  const DesiredAttempt* wanted = Wanted(action.attempt);
  if (action.kind == Action::Kind::kBegin) {
    TY_CHECK(wanted != nullptr);
    Begin(action.attempt, *wanted);
    return;
  }
  if (action.kind == Action::Kind::kAbandon) fetcher_.Cancel(action.attempt);
  const absl::Status status = attempts_.Apply(action, wanted);
  // The next turn finds what is missing and tries again.
  if (!status.ok() && !absl::IsUnavailable(status)) {
    LogWarning("a step failed and will be tried again",
               {{"attempt", AttemptName(action.attempt)},
                {"action", absl::StrCat(static_cast<int>(action.kind))},
                {"error", std::string(status.message())}});
  }
}

void Agent::Begin(AttemptId id, const DesiredAttempt& wanted) {
  const auto tries = begin_tries_.find(id);
  if (tries != begin_tries_.end() && clock_.Uptime() < tries->second.next) return;
  const absl::StatusOr<bool> at_once = attempts_.Prepare(id, wanted);
  if (!at_once.ok()) {
    BeginFailed(id, wanted, at_once.status());
  } else if (*at_once) {
    Assign(id, wanted);
  } else {
    fetcher_.Begin(id, *wanted.resume_from,
                   Attempts::ResumeFolder(*attempts_.Find(id), *wanted.resume_from));
  }
}

void Agent::Assign(AttemptId id, const DesiredAttempt& wanted) {
  const absl::Status assigned = attempts_.Assign(id, wanted, LeaseOf(*desired_, wanted));
  if (!assigned.ok()) {
    BeginFailed(id, wanted, assigned);
    return;
  }
  begin_tries_.erase(id);
  LogInfo("attempt begun",
          {{"attempt", AttemptName(id)}, {"ranks", absl::StrCat(wanted.ranks.size())}});
}

void Agent::BeginFailed(AttemptId id, const DesiredAttempt& wanted, const absl::Status& status) {
  LogWarning("an attempt cannot be begun",
             {{"attempt", AttemptName(id)}, {"error", std::string(status.message())}});
  Tries& tries = begin_tries_[id];
  // A full disk may have room again; a device that is not here will not come.
  const bool for_good = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  if (!for_good && ++tries.failed < kBeginTries) {
    tries.next = clock_.Uptime() + kBeginRetry;
    attempts_.Discard(id);
    return;
  }
  begin_tries_.erase(id);
  run_dir::AttemptExit exit;
  const std::string reason = ErrorReason(status);
  exit.outcome =
      reason == "DEVICE_NOT_FOUND" ? run_dir::Outcome::kHardware : run_dir::Outcome::kTransient;
  exit.exit_code = run_dir::ExitCode(exit.outcome);
  exit.reason = reason.empty() ? "START_FAILED" : reason;
  exit.message = std::string(status.message());
  exit.failed_rank = FirstWithoutDevice(wanted.ranks, options_.devices);
  attempts_.Fail(id, wanted.fencing_token, std::move(exit));
}

void Agent::SetTargets() {
  std::vector<UploadTarget> targets;
  for (const auto& [id, attempt] : attempts_.all()) {
    if (!attempt.has_directory || attempt.local.phase == Phase::kPreparing) continue;
    UploadTarget target;
    target.id = id;
    target.fencing_token = attempt.local.fencing_token;
    target.dir = attempt.dir;
    target.checkpoints = attempt.local.checkpoints;
    target.exited = attempt.exit.has_value();
    if (attempt.assignment.has_value()) {
      for (const auto& rank : attempt.assignment->ranks) target.ranks.push_back(rank.rank);
    }
    targets.push_back(std::move(target));
  }
  streams_.SetTargets(targets);
  checkpoints_.SetTargets(std::move(targets));
}

void Agent::SendReport() {
  Report report;
  if (desired_.has_value()) {
    report.desired_serial = desired_->serial;
    report.desired_revision = desired_->revision;
  }
  if (gpus_.has_value()) report.changed_devices = gpus_->gpus();
  for (const auto& [id, attempt] : attempts_.all()) {
    if (attempt.local.phase == Phase::kIncomplete) continue;
    ReportedAttempt reported = Describe(attempt);
    for (const auto& [name, value] : streams_.ProgressOf(id).metrics) {
      reported.metrics.emplace(name, value);
    }
    const DesiredAttempt* wanted = Wanted(id);
    if (reported.state == ReportedAttempt::State::kStarting && wanted != nullptr &&
        wanted->spans_workers) {
      for (const std::string& key : attempt.local.rendezvous) {
        auto value = run_dir::GetRendezvousKey(attempt.dir, key);
        if (value.ok() && !wanted->rendezvous.contains(key)) {
          reported.rendezvous[key] = *std::move(value);
        }
      }
    }
    report.attempts.push_back(std::move(reported));
  }
  if (reported_.has_value() && *reported_ == report) return;
  const bool urgent = reported_.has_value() && IsUrgent(*reported_, report);
  reported_ = report;
  link_.SetReport(report, urgent);
}

void Agent::LookAtDevices() {
  if (!gpus_.has_value() || clock_.Uptime() < devices_due_) return;
  devices_due_ = clock_.Uptime() + options_.device_look_interval;
  std::set<std::string> held;
  for (const auto& [id, attempt] : attempts_.all()) {
    if (!RunsHere(attempt)) continue;
    for (const auto& rank : attempt.assignment->ranks) held.insert(rank.device);
  }
  gpus_->Look(held);
  RecordDeviceMetrics();
  StopRanksOfFailedDevices();
}

void Agent::RecordDeviceMetrics() {
  const absl::Duration now = clock_.Uptime();
  std::erase_if(device_metrics_due_, [this](const auto& entry) {
    const Attempt* attempt = attempts_.Find(entry.first);
    return attempt == nullptr || !RunsHere(*attempt);
  });
  for (const auto& [id, attempt] : attempts_.all()) {
    if (!RunsHere(attempt)) continue;
    const auto due = device_metrics_due_.try_emplace(id, now).first;
    bool is_any_sampled = false;
    for (const auto& rank : attempt.assignment->ranks) {
      const Device* device = gpus_->Find(rank.device);
      const auto progress = attempt.progress.find(rank.rank);
      // Before its first step there is no step that a point could belong to.
      if (device == nullptr || progress == attempt.progress.end() || progress->second.step == 0) {
        continue;
      }
      const bool is_sampled = now >= due->second && device->usage.has_value();
      is_any_sampled = is_any_sampled || is_sampled;
      const absl::Status status = AppendDevicePoints(
          attempt.dir.DeviceMetricsPath(rank.rank),
          DevicePoints(is_sampled ? *device->usage : DeviceUsage(), gpus_->XidsOf(rank.device),
                       rank.rank, progress->second.step, absl::ToUnixMicros(clock_.Now())));
      if (!status.ok()) {
        LogWarning("metrics of a device are lost", {{"error", std::string(status.message())}});
      }
    }
    if (is_any_sampled) due->second = now + options_.device_metrics_interval;
  }
}

void Agent::StopRanksOfFailedDevices() {
  for (const auto& [id, attempt] : attempts_.all()) {
    if (!RunsHere(attempt) || attempt.local.stop.has_value()) continue;
    for (const auto& rank : attempt.assignment->ranks) {
      const std::string why = gpus_->WhyRanksEnd(rank.device);
      if (why.empty()) continue;
      Action stop;
      stop.kind = Action::Kind::kStop;
      stop.attempt = id;
      stop.stop = {run_dir::kStopDeviceLost, kDeviceLostGrace,
                   absl::StrCat("device ", rank.device, " has failed: ", why), rank.rank};
      LogWarning("an attempt ends with its device",
                 {{"attempt", AttemptName(id)}, {"error", stop.stop.message}});
      Act(stop);
      break;
    }
  }
}

}  // namespace trainyard::agent
