// Runs the thread of the daemon. The daemon core decides what it does in a turn.
#include "worker/agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/processes.h"
#include "worker/agent/accounts.h"
#include "worker/agent/act_as.h"
#include "worker/agent/device_metrics.h"
#include "worker/run_dir/control.h"

namespace trainyard::agent {
namespace {

// Nothing can be saved from a device that has failed, but peers on other devices may want to report
// that.
constexpr absl::Duration kDeviceLostGrace = absl::Seconds(5);
// Whoever looks at the file of the last answer need not know it to the second.
constexpr absl::Duration kHeardInterval = absl::Seconds(5);

// Returns true if a supervisor has the attempt's ranks, or is about to have them.
bool RunsHere(const Attempt& attempt) {
  return attempt.has_directory && attempt.is_assigned && !attempt.exit.has_value() &&
         (attempt.local.phase == Phase::kLaunching || attempt.local.phase == Phase::kAlive);
}

// Returns true if rank 0 was here, and was to leave files.
bool HasOutputs(const UploadTarget& target) {
  const ActAs as(target.owner);
  return FileExists(target.dir.OutputsPath());
}

// Returns as whom data sets are looked at. Ranks of a worker that runs jobs as their owners have no
// rights of root, and a look has none either.
Account ReaderOfDatasets(RunAs run_as) {
  return run_as == RunAs::kOwner ? NobodysAccount() : Account{};
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
      code_(options_.settings.state_dir, clock),
      fetcher_(stub, code_, clock, rng, [this] { Wake(); }),
      dirs_(options_.settings, options_.devices, fetcher_, clock,
            watch_.has_value() ? &*watch_ : nullptr),
      core_(dirs_, options_.devices, clock),
      streams_(stub, session_, rng, [this] { Wake(); }),
      checkpoints_(stub, session_, rng, [this] { Wake(); }),
      tunnels_(stub, session_, options_.settings.programs.enter),
      link_(stub, options_.identity, options_.devices, session_, clock, rng,
            [this](Desired desired) {
              {
                absl::MutexLock lock(&mutex_);
                inbox_ = std::move(desired);
              }
              Wake();
            }) {
  TY_CHECK(wake_.valid());
  dirs_.set_ask_secrets([this, &stub](AttemptId id, int64_t fencing_token, CancelToken& token) {
    return FetchSecrets(stub, session_, id, fencing_token, token);
  });
  if (options_.dataset_look_interval.has_value()) {
    const HostSettings& settings = options_.settings;
    datasets_.emplace(
        DatasetWatch::Options{settings.state_dir, settings.programs.trainer, settings.dataset_dir,
                              *options_.dataset_look_interval, ReaderOfDatasets(settings.run_as)},
        [this] { Wake(); });
  }
  if (nvml == nullptr) return;
  const std::string root = JoinPath(options_.settings.state_dir, "attempts");
  ProcessView view;
  // A process of another user may claim to be of a run.
  view.is_ours = [root](int64_t pid) {
    const std::string dir = ProcessVariable(pid, "TRAINYARD_ATTEMPT_DIR");
    struct stat info {};
    return dir.starts_with(root + "/") && lstat(dir.c_str(), &info) == 0 &&
           IsProcessOf(pid, info.st_uid);
  };
  view.is_visible = IsProcessVisible;
  view.describe = DescribeProcess;
  gpus_.emplace(options_.devices, *nvml, std::move(view));
}

Agent::~Agent() {
  Stop();
}

std::string Agent::HeardPath() const {
  return JoinPath(options_.settings.state_dir, "heard");
}

void Agent::Start() {
  (void)unlink(HeardPath().c_str());
  core_.Adopt();
  streams_.Start();
  checkpoints_.Start();
  link_.Start();
  if (datasets_.has_value()) datasets_->Start();
  thread_ = std::thread([this] { Loop(); });
}

void Agent::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
  if (datasets_.has_value()) datasets_->Stop();
  link_.Stop();
  tunnels_.Stop();
  streams_.Stop();
  checkpoints_.Stop();
}

void Agent::Leave(absl::Duration within) {
  {
    absl::MutexLock lock(&mutex_);
    leave_within_ = within;
  }
  Wake();
}

bool Agent::has_left() const {
  absl::MutexLock lock(&mutex_);
  return has_left_;
}

void Agent::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

bool Agent::IsAlive() {
  const int64_t turns = turns_;
  if (turns == turns_seen_) return false;
  turns_seen_ = turns;
  Wake();
  return true;
}

void Agent::Loop() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
    }
    Turn();
    ++turns_;
    pollfd fds[] = {{wake_.get(), POLLIN, 0}, {watch_.has_value() ? watch_->fd() : -1, POLLIN, 0}};
    // The time is rounded up, because a turn that comes too early finds nothing due.
    const absl::Duration wait = absl::Ceil(NextTurn(), absl::Milliseconds(1));
    (void)poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(wait)));
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
  }
}

absl::Duration Agent::NextTurn() const {
  absl::Duration next = core_.NextTurn();
  if (gpus_.has_value()) next = std::min(next, devices_due_ - clock_.Uptime());
  return std::max(next, absl::ZeroDuration());
}

void Agent::Turn() {
  TakeNews();
  core_.BeginTurn();
  while (core_.Step()) {
  }
  Report report = core_.EndTurn();
  SetTargets();
  LookAtDevices();
  SendReport(std::move(report));
}

void Agent::TakeNews() {
  std::optional<Desired> desired;
  {
    absl::MutexLock lock(&mutex_);
    desired = std::exchange(inbox_, std::nullopt);
  }
  if (desired.has_value()) {
    NoteHeard();
    gets_nothing_more_ = desired->knows_leaving && desired->attempts.empty();
    ServeTunnels(desired->tunnels);
    core_.Wants(*std::move(desired));
  }
  for (auto& [id, status] : fetcher_.TakeDone()) core_.Fetched(id, status);
  std::vector<AttemptId> ids;
  for (const auto& [id, attempt] : core_.attempts()) ids.push_back(id);
  for (const AttemptId id : ids) {
    CheckpointUploader::Progress checkpoints = checkpoints_.ProgressOf(id);
    const bool is_all_sent = checkpoints.done && streams_.ProgressOf(id).done;
    checkpoints.committed.erase(kOutputsStep);
    core_.Uploaded(id, std::move(checkpoints.committed), is_all_sent);
  }
}

void Agent::NoteHeard() {
  if (clock_.Uptime() < heard_due_) return;
  heard_due_ = clock_.Uptime() + kHeardInterval;
  // A full disk must not keep the daemon from working.
  const UniqueFd file(open(HeardPath().c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.valid()) (void)futimens(file.get(), nullptr);
}

void Agent::ServeTunnels(const std::vector<WantedTunnel>& wanted) {
  for (const WantedTunnel& tunnel : wanted) {
    const auto found = core_.attempts().find(tunnel.attempt);
    std::optional<TunnelTarget> target;
    if (found != core_.attempts().end() && RunsHere(found->second) &&
        found->second.local.fencing_token == tunnel.fencing_token) {
      target = TunnelTarget{dirs_.DirOf(tunnel.attempt), dirs_.OwnerOf(tunnel.attempt)};
    }
    tunnels_.Serve(tunnel, std::move(target));
  }
}

void Agent::SetTargets() {
  std::vector<UploadTarget> targets;
  for (const auto& [id, attempt] : core_.attempts()) {
    if (!attempt.has_directory || attempt.local.phase == Phase::kPreparing) continue;
    UploadTarget target;
    target.id = id;
    target.fencing_token = attempt.local.fencing_token;
    target.dir = dirs_.DirOf(id);
    target.owner = dirs_.OwnerOf(id);
    target.checkpoints = attempt.local.checkpoints;
    target.exited = attempt.exit.has_value();
    if (target.exited && HasOutputs(target)) target.checkpoints.push_back(kOutputsStep);
    for (const DesiredRank& rank : attempt.ranks) target.ranks.push_back(rank.rank);
    targets.push_back(std::move(target));
  }
  streams_.SetTargets(targets);
  checkpoints_.SetTargets(std::move(targets));
}

void Agent::SendReport(Report report) {
  if (gpus_.has_value()) report.changed_devices = gpus_->gpus();
  if (datasets_.has_value()) report.datasets = datasets_->Latest();
  report.refused_users = dirs_.refused_users();
  {
    absl::MutexLock lock(&mutex_);
    report.leave_within = leave_within_;
    has_left_ = gets_nothing_more_ && core_.attempts().empty();
  }
  for (ReportedAttempt& attempt : report.attempts) {
    for (const auto& [name, value] : streams_.ProgressOf(attempt.id).metrics) {
      attempt.metrics.emplace(name, value);
    }
  }
  if (reported_.has_value() && *reported_ == report) return;
  const bool urgent = reported_.has_value() && IsUrgent(*reported_, report);
  reported_ = report;
  link_.SetReport(std::move(report), urgent);
}

void Agent::LookAtDevices() {
  if (!gpus_.has_value() || clock_.Uptime() < devices_due_) return;
  devices_due_ = clock_.Uptime() + options_.device_look_interval;
  std::set<std::string> held;
  for (const auto& [id, attempt] : core_.attempts()) {
    if (!RunsHere(attempt)) continue;
    for (const auto& rank : attempt.ranks) held.insert(rank.device);
  }
  gpus_->Look(held);
  RecordDeviceMetrics();
  StopRanksOfFailedDevices();
}

void Agent::RecordDeviceMetrics() {
  const absl::Duration now = clock_.Uptime();
  std::erase_if(device_metrics_due_, [this](const auto& entry) {
    const auto attempt = core_.attempts().find(entry.first);
    return attempt == core_.attempts().end() || !RunsHere(attempt->second);
  });
  for (const auto& [id, attempt] : core_.attempts()) {
    if (!RunsHere(attempt)) continue;
    const auto due = device_metrics_due_.try_emplace(id, now).first;
    bool is_any_sampled = false;
    for (const auto& rank : attempt.ranks) {
      const Device* device = gpus_->Find(rank.device);
      const auto progress = attempt.progress.find(rank.rank);
      // Before its first step there is no step to which a point could belong.
      if (device == nullptr || progress == attempt.progress.end() || progress->second.step == 0) {
        continue;
      }
      const bool is_sampled = now >= due->second && device->usage.has_value();
      is_any_sampled = is_any_sampled || is_sampled;
      const std::vector<run_dir::MetricPoint> points =
          DevicePoints(is_sampled ? *device->usage : DeviceUsage(), gpus_->XidsOf(rank.device),
                       rank.rank, progress->second.step, absl::ToUnixMicros(clock_.Now()));
      const ActAs as(dirs_.OwnerOf(id));
      const absl::Status status =
          AppendDevicePoints(dirs_.DirOf(id).DeviceMetricsPath(rank.rank), points);
      if (!status.ok()) {
        LogWarning("metrics of a device are lost", {{"error", std::string(status.message())}});
      }
    }
    if (is_any_sampled) due->second = now + options_.device_metrics_interval;
  }
}

void Agent::StopRanksOfFailedDevices() {
  std::map<AttemptId, run_dir::StopRequest> stops;
  for (const auto& [id, attempt] : core_.attempts()) {
    if (!RunsHere(attempt) || attempt.local.stop.has_value()) continue;
    for (const DesiredRank& rank : attempt.ranks) {
      const std::string why = gpus_->WhyRanksEnd(rank.device);
      if (why.empty()) continue;
      stops[id] = {run_dir::kStopDeviceLost, kDeviceLostGrace,
                   absl::StrCat("device ", rank.device, " has failed: ", why), rank.rank};
      break;
    }
  }
  for (const auto& [id, stop] : stops) {
    LogWarning("an attempt ends with its device",
               {{"attempt", AttemptName(id)}, {"error", stop.message}});
    core_.Stop(id, stop);
  }
}

}  // namespace trainyard::agent
