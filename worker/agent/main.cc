// trainyard-worker: the daemon of a host. Ending it leaves its jobs running.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/interfaces.h"
#include "common/base/labels.h"
#include "common/base/log.h"
#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/address.h"
#include "common/rpc/channel.h"
#include "worker/agent/agent.h"

namespace trainyard {
namespace {

struct Flags {
  std::string server;
  std::string state_dir;
  std::string name;
  std::string dataset_dir;
  std::string interface = "lo";
  std::string address;
  std::vector<std::string> labels;
  std::string trainer;
  std::string supervisor;
  std::string nvml = "libnvidia-ml.so.1";
  std::string device_metrics_interval = "10s";
  LogFormat log_format = LogFormat::kText;
  std::string cpu_devices = "0";
  agent::CpuDeviceOptions cpu;
};

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// $XDG_STATE_HOME/trainyard, or ~/.local/state/trainyard.
std::string StateHome() {
  const std::string home = Variable("XDG_STATE_HOME");
  return JoinPath(home.empty() ? JoinPath(Variable("HOME"), ".local/state") : home, "trainyard");
}

std::string Hostname() {
  char name[256] = {};
  (void)gethostname(name, sizeof name - 1);
  return name;
}

// The first label of the host name as [a-z0-9-]{1,63}.
std::string WorkerNameOf(const std::string& hostname) {
  std::string name;
  for (const char c : absl::AsciiStrToLower(hostname.substr(0, hostname.find('.')))) {
    name.push_back(absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '-');
  }
  name = name.substr(0, 63);
  return name.empty() ? "worker" : name;
}

std::string Beside(const std::string& program) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / program).string();
}

// The identity of the state directory: made at its first use, kept for ever.
absl::StatusOr<std::string> ReadOrMakeUid(const std::string& state_dir) {
  const std::string path = JoinPath(state_dir, "uid");
  auto text = ReadFile(path, 100);
  if (text.ok() && !text->empty()) return std::string(absl::StripAsciiWhitespace(*text));
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  const std::string uid = MakeUuid(*Rng::Real());
  TY_RETURN_IF_ERROR(WriteFileAtomically(path, uid + "\n"));
  return uid;
}

// What there is to know of a GPU before anything goes wrong with it.
void LogGpu(const agent::Gpu& gpu, const absl::StatusOr<agent::GpuReading>& reading) {
  std::string errors = "unknown";
  if (reading.ok() && reading->lifetime_ecc_errors.has_value()) {
    errors = absl::StrCat(*reading->lifetime_ecc_errors);
  }
  const bool has_ecc = reading.ok() && reading->ecc_enabled.value_or(false);
  LogInfo("a GPU is here", {{"device", gpu.uuid},
                            {"product", gpu.product},
                            {"bus", gpu.pci_bus_id},
                            {"compute_capability", gpu.compute_capability},
                            {"island", absl::StrCat(gpu.island)},
                            {"ecc", has_ecc ? "on" : "off"},
                            {"uncorrected_errors_ever", errors}});
}

absl::StatusOr<std::vector<agent::Device>> FindDevices(const Flags& flags, agent::Nvml* nvml) {
  std::vector<agent::Device> devices;
  if (nvml != nullptr) {
    TY_ASSIGN_OR_RETURN(const std::vector<agent::Gpu> gpus, nvml->ListGpus());
    devices = agent::GpuDevices(gpus);
    for (const agent::Gpu& gpu : gpus) LogGpu(gpu, nvml->Read(gpu.uuid));
  }
  agent::CpuDeviceOptions options = flags.cpu;
  TY_RETURN_IF_ERROR(agent::ReadCpuDevices(flags.cpu_devices, options));
  TY_ASSIGN_OR_RETURN(std::vector<agent::Device> cpus,
                      agent::DivideCpus(agent::AllowedCpus(), AllowedMemory(), options));
  devices.insert(devices.end(), cpus.begin(), cpus.end());
  return devices;
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    TY_ASSIGN_OR_RETURN(auto label, ParseLabel(text));
    const std::string key = label.first;
    if (!labels.insert(std::move(label)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("label '", key, "' is given twice; expected one value for it"));
    }
  }
  if (labels.size() > kLabelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels.size(), " labels; expected at most ", kLabelsMax));
  }
  return labels;
}

absl::Status Run(const Flags& flags) {
  // Before any thread starts, so that all of them inherit it; sigwait below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)signal(SIGPIPE, SIG_IGN);

  TY_ASSIGN_OR_RETURN(const auto labels, ParseLabels(flags.labels));
  const absl::StatusOr<InterfaceAddress> address = FindInterface(flags.address);
  TY_RETURN_IF_ERROR(Annotate(address.status(), "--address"));
  std::error_code error;
  const std::string state_dir = std::filesystem::absolute(flags.state_dir, error).string();
  TY_RETURN_IF_ERROR(MakeDirectories(state_dir, 0700));
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(state_dir));
  TY_ASSIGN_OR_RETURN(const std::string uid, ReadOrMakeUid(state_dir));
  // What trainers measured of this host's devices serves later jobs. A service may have no home.
  setenv("XDG_CACHE_HOME", JoinPath(state_dir, "cache").c_str(), /*overwrite=*/0);
  TY_ASSIGN_OR_RETURN(const auto channel, rpc::MakeChannel(flags.server));
  const auto stub = v1::AgentService::NewStub(channel);
  auto nvml = agent::Nvml::Open(flags.nvml);
  if (!nvml.ok() && !absl::IsNotFound(nvml.status())) {
    LogWarning("no GPU is offered", {{"error", std::string(nvml.status().message())}});
  }
  agent::Nvml* gpus = nvml.ok() ? nvml->get() : nullptr;
  if (gpus != nullptr) LogInfo("NVIDIA's driver answers", {{"version", gpus->DriverVersion()}});

  agent::AgentOptions options;
  options.settings = {state_dir,     flags.dataset_dir, flags.interface,
                      flags.address, flags.name,        {flags.supervisor, flags.trainer}};
  options.identity = {flags.name, uid, Hostname(), address->address, labels};
  TY_ASSIGN_OR_RETURN(options.device_metrics_interval,
                      ParseDuration(flags.device_metrics_interval));
  TY_ASSIGN_OR_RETURN(options.devices, FindDevices(flags, gpus));
  LogInfo("worker starts",
          {{"name", flags.name},
           {"server", flags.server},
           {"address", absl::StrCat(address->address, " (", address->interface, ")")},
           {"devices", absl::StrCat(options.devices.size())},
           {"version", Version()}});
  agent::Agent daemon(std::move(options), *stub, gpus, *Clock::Real(), *Rng::Real());
  daemon.Start();
  int number = 0;
  (void)sigwait(&signals, &number);
  LogInfo("worker ends; its jobs go on", {{"signal", absl::StrCat(number)}});
  daemon.Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.server = rpc::DefaultServerAddress(Variable("XDG_STATE_HOME"), Variable("HOME"));
  flags.state_dir = JoinPath(StateHome(), "worker");
  flags.name = WorkerNameOf(Hostname());
  flags.trainer = Beside("trainyard-trainer");
  flags.supervisor = Beside("trainyard-supervisor");
  CLI::App app(
      "Runs the ranks of jobs on this host, for a trainyard-server. Ending it leaves its "
      "jobs running; the next one on the same state directory adopts them.");
  app.set_version_flag("--version", Version());
  app.option_defaults()->always_capture_default();
  app.add_option("--server", flags.server, "unix:/path, or 127.0.0.1:port");
  app.add_option("--state_dir", flags.state_dir, "folder of run directories and identity");
  app.add_option("--name", flags.name, "name in the pool, [a-z0-9-]{1,63}");
  app.add_option(
      "--cpu_devices", flags.cpu_devices,
      "CPU devices to offer: their number, 0 for as many as fit; unequal ones as devices "
      "x threads (1x2,2x1), or as threads @ processors of each (1@0,1@1,1@1)");
  app.add_option("--threads_per_device", flags.cpu.threads_per_device,
                 "threads and processors of a CPU device; 0: processors / devices");
  app.add_flag("--share_cpus", flags.cpu.share,
               "CPU devices share all processors, so that there may be more of them");
  app.add_option("--dataset_dir", flags.dataset_dir, "folder of the data sets");
  app.add_option(
      "--interface", flags.interface,
      "where ranks of gangs on this host alone talk: an interface, an address, or a network");
  app.add_option("--address", flags.address,
                 "where other hosts reach ranks of ours: an interface, an address, or a network "
                 "(10.1.0.0/16); empty: the interface of the default route");
  app.add_option("--label", flags.labels, "key=value that jobs may ask for; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--trainer", flags.trainer, "program that is a rank (cpu backend)");
  app.add_option("--supervisor", flags.supervisor, "program that owns an attempt's ranks");
  app.add_option("--nvml", flags.nvml, "NVIDIA's management library");
  app.add_option("--device_metrics_interval", flags.device_metrics_interval,
                 "time between two points of the metrics of a GPU on which a rank runs");
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::kText},
                                                    {"json", LogFormat::kJson}};
  app.add_option("--log_format", flags.log_format, "text or json")
      ->transform(CLI::CheckedTransformer(formats));
  CLI11_PARSE(app, argc, argv);
  InitLog("trainyard-worker", LogLevel::kInfo, flags.log_format);
  const absl::Status status = Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "trainyard-worker: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
