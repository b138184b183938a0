// Builds the daemon of a host: lock, identity, devices, channel; then waits for the signal to end.
#include "worker/agent/worker_app.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/base/worker_name.h"
#include "common/rpc/channel.h"
#include "worker/agent/agent.h"
#include "worker/agent/host_devices.h"
#include "worker/agent/worker_identity.h"

namespace trainyard::agent {
namespace {

// A look at the names and times of files costs little. Data sets seldom change.
constexpr absl::Duration kDatasetLookInterval = absl::Seconds(30);

}  // namespace

absl::Status RunWorker(const WorkerFlags& flags) {
  // Signals are blocked before any thread starts, so that all threads inherit the mask; sigwait
  // below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)signal(SIGPIPE, SIG_IGN);

  TY_ASSIGN_OR_RETURN(const auto labels, ParseWorkerLabels(flags.labels));
  const absl::StatusOr<InterfaceAddress> address = FindInterface(flags.address);
  TY_RETURN_IF_ERROR(Annotate(address.status(), "--address"));
  std::error_code error;
  const std::string state_dir = std::filesystem::absolute(flags.state_dir, error).string();
  TY_RETURN_IF_ERROR(MakeDirectories(state_dir, 0700));
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(state_dir));
  TY_ASSIGN_OR_RETURN(const std::string uid, ReadOrMakeUid(state_dir));
  // Plans that trainers measured on this host's devices serve later jobs. A service may have no
  // home directory.
  setenv("XDG_CACHE_HOME", JoinPath(state_dir, "cache").c_str(), /*overwrite=*/0);
  TY_ASSIGN_OR_RETURN(const auto channel, rpc::MakeChannel(flags.server, rpc::Keepalive::kPings));
  const auto stub = v1::AgentService::NewStub(channel);
  auto nvml = Nvml::Open(flags.nvml);
  if (!nvml.ok() && !absl::IsNotFound(nvml.status())) {
    LogWarning("no GPU is offered", {{"error", std::string(nvml.status().message())}});
  }
  Nvml* gpus = nvml.ok() ? nvml->get() : nullptr;
  if (gpus != nullptr) LogInfo("NVIDIA's driver answers", {{"version", gpus->DriverVersion()}});

  AgentOptions options;
  options.settings = {state_dir,     flags.dataset_dir, flags.interface,
                      flags.address, flags.name,        {flags.supervisor, flags.trainer}};
  options.identity = {flags.name, uid, Hostname(), address->address, labels};
  TY_ASSIGN_OR_RETURN(options.device_metrics_interval,
                      ParseDuration(flags.device_metrics_interval));
  options.dataset_look_interval = kDatasetLookInterval;
  TY_ASSIGN_OR_RETURN(options.devices, FindDevices(flags, gpus));
  LogInfo("worker starts",
          {{"name", flags.name},
           {"server", flags.server},
           {"address", absl::StrCat(address->address, " (", address->interface, ")")},
           {"devices", absl::StrCat(options.devices.size())},
           {"version", Version()}});
  Agent daemon(std::move(options), *stub, gpus, *Clock::Real(), *Rng::Real());
  daemon.Start();
  int number = 0;
  (void)sigwait(&signals, &number);
  LogInfo("worker ends; its jobs keep running", {{"signal", absl::StrCat(number)}});
  daemon.Stop();
  return absl::OkStatus();
}

}  // namespace trainyard::agent
