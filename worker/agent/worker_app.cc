// Builds the daemon of a host: lock, identity, devices, channel; then waits for the signal to end.
#include "worker/agent/worker_app.h"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/container_runtime.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/log.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/system_accounts.h"
#include "common/base/version.h"
#include "common/base/worker_name.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "worker/agent/accounts.h"
#include "worker/agent/act_as.h"
#include "worker/agent/agent.h"
#include "worker/agent/attempt_groups.h"
#include "worker/agent/enrolment.h"
#include "worker/agent/host_devices.h"
#include "worker/agent/isolation.h"
#include "worker/agent/worker_identity.h"
#include "worker/cgroup/group.h"

namespace trainyard::agent {
namespace {

// A look at the names and times of files costs little. Data sets seldom change.
constexpr absl::Duration kDatasetLookInterval = absl::Seconds(30);
// The server gets this part of --drain_on_stop for checkpoints. The rest is for the end of the
// ranks, and for what is still to be sent.
constexpr double kCheckpointPart = 0.6;
constexpr absl::Duration kDrainMax = absl::Hours(24);
constexpr absl::Duration kDrainLookInterval = absl::Milliseconds(100);

std::string Absolute(const std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// Makes the state directory, and makes sure that nobody else can change what is in it. If ranks run
// as their owners, these pass through it to their run directories.
absl::Status PrepareStateDir(const std::string& state_dir, RunAs run_as) {
  if (run_as != RunAs::kOwner) return MakeDirectories(state_dir, 0700);
  TY_RETURN_IF_ERROR(CheckCanActAs());
  TY_RETURN_IF_ERROR(MakeDirectories(state_dir, 0711));
  TY_RETURN_IF_ERROR(CheckPrivateDirectory(state_dir));
  if (chmod(state_dir.c_str(), 0711) != 0) {
    return ErrnoStatus(errno, "cannot change the mode of", state_dir);
  }
  return CheckPassage(state_dir);
}

// Finds out how strictly ranks can be kept apart here. A host without control groups runs jobs too.
void TakeIsolation(const WorkerFlags& flags, const std::string& uid, HostSettings& settings) {
  if (flags.cgroup != kNoGroup) {
    const auto own = ReadFileRange("/proc/self/cgroup", 0, int64_t{1} << 16);
    auto groups = AttemptGroups::Open({.where = flags.cgroup,
                                       .own_group = cgroup::GroupOf(own.value_or("")),
                                       .mark = uid.substr(0, uid.find('-')),
                                       .processes = flags.rank_processes});
    if (groups.ok()) {
      settings.groups = std::make_shared<const AttemptGroups>(*std::move(groups));
    } else {
      LogInfo("attempts get no control groups, so their memory is not bounded",
              {{"why", std::string(groups.status().message())}});
    }
  }
  settings.isolation =
      FindIsolation(settings.groups != nullptr, flags.run_as == RunAs::kOwner,
                    [](const std::string& name) { return FindSystemProgram(name); });
}

std::string RunsJobsOf(const AgentOptions& options) {
  switch (options.settings.run_as) {
    case RunAs::kSelf:
      return options.identity.run_as_user;
    case RunAs::kOwner:
      return "everybody, as themselves";
    case RunAs::kAnyone:
      break;
  }
  const std::string& only = options.identity.run_as_user;
  return absl::StrCat(only.empty() ? "everybody" : only, ", as ", UserName(geteuid()));
}

absl::StatusOr<absl::Duration> ReadDrainTime(const WorkerFlags& flags) {
  const absl::StatusOr<absl::Duration> time = ParseDuration(flags.drain_on_stop);
  TY_RETURN_IF_ERROR(Annotate(time.status(), "--drain_on_stop"));
  if (*time >= absl::ZeroDuration() && *time <= kDrainMax) return time;
  return absl::InvalidArgumentError(absl::StrCat("--drain_on_stop: ", flags.drain_on_stop,
                                                 " is not accepted; expected 0s to 24h"));
}

// Lets the jobs of this host go on elsewhere. A further signal ends the wait.
void Empty(Agent& daemon, absl::Duration time, const sigset_t& signals) {
  Clock& clock = *Clock::Real();
  const absl::Duration deadline = clock.Uptime() + time;
  daemon.Leave(time * kCheckpointPart);
  const timespec look = absl::ToTimespec(kDrainLookInterval);
  while (!daemon.has_left()) {
    if (clock.Uptime() >= deadline) {
      LogWarning("the worker ends before its jobs have left it",
                 {{"waited", absl::FormatDuration(time)}});
      return;
    }
    if (sigtimedwait(&signals, nullptr, &look) > 0) {
      LogWarning("the worker ends before its jobs have left it, because it was told again");
      return;
    }
  }
  LogInfo("the worker is empty");
}

}  // namespace

absl::Status RunWorker(const WorkerFlags& flags, const ServiceManager& manager) {
  // Signals are blocked before any thread starts, so that all threads inherit the mask; the
  // wait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  rpc::KeepConnecting();
  (void)signal(SIGPIPE, SIG_IGN);

  TY_ASSIGN_OR_RETURN(auto labels, ParseWorkerLabels(flags.labels));
  if (!flags.jobs_of.empty() && flags.run_as != RunAs::kAnyone) {
    return absl::InvalidArgumentError(
        "--jobs_of: a worker with another --run_as than anyone knows by itself whose jobs it runs; "
        "leave it out, or say --run_as anyone");
  }
  TY_ASSIGN_OR_RETURN(const absl::Duration drain_time, ReadDrainTime(flags));
  const absl::StatusOr<InterfaceAddress> address = FindInterface(flags.address);
  TY_RETURN_IF_ERROR(Annotate(address.status(), "--address"));
  const std::string state_dir = Absolute(flags.state_dir);
  TY_RETURN_IF_ERROR(PrepareStateDir(state_dir, flags.run_as));
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(state_dir));
  TY_ASSIGN_OR_RETURN(const std::string uid, ReadOrMakeUid(state_dir));
  // Plans that trainers measured on this host's devices serve later jobs. A service may have no
  // home directory.
  setenv("XDG_CACHE_HOME", JoinPath(state_dir, "cache").c_str(), /*overwrite=*/0);
  TY_ASSIGN_OR_RETURN(const rpc::Address server, rpc::ParseAddress(flags.server));
  const bool is_remote = server.kind == rpc::Address::Kind::kTls;
  const EnrolmentOptions enrolment = {server, flags.name, JoinPath(state_dir, "tls"),
                                      flags.join_token_file, flags.server_fingerprint};
  rpc::TlsOptions tls;
  if (is_remote) {
    TY_ASSIGN_OR_RETURN(tls, Enrol(enrolment, *Clock::Real()));
  }
  TY_ASSIGN_OR_RETURN(const auto channel,
                      rpc::MakeChannel(flags.server, rpc::Keepalive::kPings, {}, tls));
  std::optional<CertificateRenewer> renewer;
  if (is_remote) renewer.emplace(enrolment, channel, *Clock::Real());
  const auto stub = v1::AgentService::NewStub(channel);
  auto nvml = Nvml::Open(flags.nvml);
  if (!nvml.ok() && !absl::IsNotFound(nvml.status())) {
    LogWarning("no GPU is offered", {{"error", std::string(nvml.status().message())}});
  }
  Nvml* gpus = nvml.ok() ? nvml->get() : nullptr;
  if (gpus != nullptr) LogInfo("NVIDIA's driver answers", {{"version", gpus->DriverVersion()}});

  AgentOptions options;
  options.settings.state_dir = state_dir;
  // Ranks start in folders of their own, where a relative path would lead somewhere else.
  options.settings.dataset_dir = flags.dataset_dir.empty() ? "" : Absolute(flags.dataset_dir);
  options.settings.interface = flags.interface;
  options.settings.address = flags.address;
  options.settings.worker = flags.name;
  options.settings.programs = {
      Absolute(flags.supervisor),
      Absolute(flags.trainer),
      Absolute(SiblingProgram("trainyard-program")),
      Absolute(SiblingProgram("trainyard-enter")),
      {flags.rank_core_bytes, flags.rank_open_files, flags.rank_processes}};
  options.settings.run_as = flags.run_as;
  options.settings.runs_root_jobs = flags.root_jobs;
  TakeIsolation(flags, uid, options.settings);
  labels.merge(IsolationLabels(options.settings.isolation));
  options.identity = {
      flags.name,       uid,    Hostname(),
      address->address, labels, flags.run_as == RunAs::kSelf ? UserName(geteuid()) : flags.jobs_of};
  TY_ASSIGN_OR_RETURN(options.device_metrics_interval,
                      ParseDuration(flags.device_metrics_interval));
  options.dataset_look_interval = kDatasetLookInterval;
  TY_ASSIGN_OR_RETURN(options.devices, FindDevices(flags, gpus));
  TY_ASSIGN_OR_RETURN(options.identity.host, FindHost(flags, options.devices));
  options.settings.host = options.identity.host;
  LogInfo("worker starts",
          {{"name", flags.name},
           {"server", flags.server},
           {"address", absl::StrCat(address->address, " (", address->interface, ")")},
           {"devices", absl::StrCat(options.devices.size())},
           {"cpus", absl::StrCat(options.settings.host.cpus)},
           {"memory_bytes", absl::StrCat(options.settings.host.memory_bytes)},
           {"jobs_of", RunsJobsOf(options)},
           {"version", Version()}});
  Agent daemon(std::move(options), *stub, gpus, *Clock::Real(), *Rng::Real());
  daemon.Start();
  manager.Ready(absl::StrCat("worker ", flags.name, " of ", flags.server));
  const int number = manager.WaitForSignal(signals, [&daemon] { return daemon.IsAlive(); });
  manager.Stopping(drain_time);
  if (drain_time > absl::ZeroDuration()) {
    LogInfo("worker is to end; its jobs go on elsewhere", {{"signal", absl::StrCat(number)}});
    Empty(daemon, drain_time, signals);
  } else {
    LogInfo("worker ends; its jobs keep running", {{"signal", absl::StrCat(number)}});
  }
  daemon.Stop();
  return absl::OkStatus();
}

}  // namespace trainyard::agent
