// up starts a server and a worker on this machine.
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/machine.h"
#include "client/commands/up_settings.h"
#include "client/commands/user_service.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/daemons/log_tail.h"
#include "client/daemons/pid_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/flag_style.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "common/rpc/address.h"

namespace trainyard::commands {
namespace {

using daemons::ProcessId;

struct UpOptions {
  std::string state_dir;
  std::string listen;
  std::string worker_name;
  std::string cpu_devices;  // empty lets the worker decide
  bool share_cpus = false;
  int threads_per_device = 0;  // 0 lets the worker decide
  std::string dataset_dir;
  bool reset = false;
  bool detach = false;
  bool stay = false;
  bool service = false;
};

// A server that recovers a large store takes seconds to start.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kStopGrace = absl::Seconds(10);
// The daemons write these texts to their logs once they are ready.
constexpr char kServerReady[] = "listening on ";
constexpr char kWorkerReady[] = "registered worker=";

// Flags that `up` remembers. Those of the list go to the worker as they are.
constexpr char kListen[] = "--listen";
constexpr char kWorkerName[] = "--worker-name";
constexpr char kDatasetDir[] = "--dataset-dir";
constexpr const char* kWorkerFlags[] = {"--cpu-devices", "--share-cpus", "--threads-per-device",
                                        kDatasetDir};

// A daemon that was started and that must become ready.
struct Started {
  std::string what;  // its name in messages, such as "server"
  pid_t pid = 0;
  std::string log;
  int64_t log_offset = 0;
};

absl::Status EndedEarly(const Started& daemon, int exit_code) {
  const std::string cause = daemons::CauseFromLog(daemon.log, daemon.log_offset);
  return absl::FailedPreconditionError(absl::StrCat(
      "the ", daemon.what, " ended with code ", exit_code, " while it started: ",
      cause.empty() ? std::string("its log says nothing") : cause, "\n  its log: ", daemon.log));
}

absl::StatusOr<Started> Start(const Context& context, const std::string& what,
                              std::vector<std::string> args, const std::string& log,
                              const std::string& pid_file, const std::string& note) {
  TY_ASSIGN_OR_RETURN(std::string binary, FindProgram(context.surroundings.binary_dir,
                                                      absl::StrCat("trainyard-", what)));
  args.insert(args.begin(), std::move(binary));
  Started daemon{what, 0, log, FileSize(log).value_or(0)};
  TY_ASSIGN_OR_RETURN(daemon.pid, daemons::StartDaemon(args, log));
  auto process = daemons::IdentifyProcess(daemon.pid);
  if (process.ok()) {
    process->note = note;
    TY_RETURN_IF_ERROR(daemons::WritePidFile(pid_file, *process));
  }
  return daemon;
}

// Asks repeatedly until the daemon is ready. Returns an error if the daemon ends first, or the time
// is over.
template <typename Question>
absl::Status WaitUntil(const Context& context, const Started& daemon, absl::string_view what,
                       Question question) {
  const absl::Duration start = context.clock.Uptime();
  while (true) {
    int exit_code = 0;
    if (daemons::HasEnded(daemon.pid, exit_code)) return EndedEarly(daemon, exit_code);
    if (question()) return absl::OkStatus();
    if (context.clock.Uptime() - start > kStartTimeout) {
      const std::string cause = daemons::CauseFromLog(daemon.log, daemon.log_offset);
      return absl::DeadlineExceededError(
          absl::StrCat(what, " within ", kStartTimeout / absl::Seconds(1), " s, and was stopped",
                       cause.empty() ? "" : ": ", cause, "\n  its log: ", daemon.log));
    }
    if (context.interrupt.WaitFor(kPollInterval)) return absl::CancelledError("interrupted");
  }
}

absl::Status StopDaemon(const Context& context, const std::string& pid_file) {
  const auto process = daemons::RunningProcess(pid_file);
  if (process.has_value()) {
    TY_RETURN_IF_ERROR(daemons::StopProcess(*process, kStopGrace, context.clock));
  }
  unlink(pid_file.c_str());
  return absl::OkStatus();
}

// Returns true if the daemon that was just started has written `text` to its log. The server cannot
// tell this: whoever answers at the address may be another server, in whose way ours will end, and
// a server takes the workers of earlier days for alive for a while.
bool HasSaid(const Started& daemon, absl::string_view text) {
  constexpr int64_t kBytesMax = int64_t{1} << 20;
  const auto log = ReadFileRange(daemon.log, daemon.log_offset, kBytesMax);
  return log.ok() && absl::StrContains(*log, text);
}

bool IsServing(const Context& context, const std::string& address) {
  const auto link = link::ServerLink::Connect(address, context.interrupt, absl::Seconds(1));
  return link.ok() && (*link)
                          ->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest(),
                                 absl::Seconds(2))
                          .ok();
}

absl::Status StartServer(const Context& context, const Machine& machine) {
  TY_ASSIGN_OR_RETURN(const Started server,
                      Start(context, "server",
                            {"--state_dir", machine.server_state_dir, "--listen", machine.address},
                            machine.server_log, machine.server_pid_file, machine.address));
  absl::Status status = WaitUntil(context, server, "the server did not answer", [&] {
    return HasSaid(server, kServerReady) && IsServing(context, machine.address);
  });
  // A daemon that did not become ready must not stay, because nobody would know of it.
  if (!status.ok()) TY_RETURN_IF_ERROR(StopDaemon(context, machine.server_pid_file));
  return status;
}

std::vector<std::string> WorkerArgs(const UpSettings& settings, const Machine& machine,
                                    const std::string& name) {
  std::vector<std::string> args = {
      "--server", machine.address, "--state_dir", machine.worker_state_dir, "--name", name};
  for (const char* flag : kWorkerFlags) {
    const auto setting = settings.find(flag);
    if (setting == settings.end()) continue;
    args.push_back(FlagInStyle(flag, FlagStyle::kUnderscores));
    if (!setting->second.empty()) args.push_back(setting->second);
  }
  return args;
}

absl::Status StartWorker(const Context& context, const UpSettings& settings,
                         const Machine& machine) {
  const auto given_name = settings.find(kWorkerName);
  const std::string name =
      given_name == settings.end() ? WorkerNameOf(Hostname()) : given_name->second;
  TY_ASSIGN_OR_RETURN(const Started worker,
                      Start(context, "worker", WorkerArgs(settings, machine, name),
                            machine.worker_log, machine.worker_pid_file, name));
  absl::Status status = WaitUntil(context, worker, "the worker did not register",
                                  [&] { return HasSaid(worker, kWorkerReady); });
  if (!status.ok()) TY_RETURN_IF_ERROR(StopDaemon(context, machine.worker_pid_file));
  return status;
}

// Stops both daemons, the worker first. The ranks of running jobs continue under their supervisors.
absl::Status StopBoth(const Context& context, const Machine& machine) {
  TY_RETURN_IF_ERROR(StopDaemon(context, machine.worker_pid_file));
  return StopDaemon(context, machine.server_pid_file);
}

// Waits until Ctrl-C, or until one of the daemons ends by itself.
Result StayInForeground(const Context& context, const Machine& machine) {
  while (!context.interrupt.WaitFor(absl::Milliseconds(200))) {
    for (const auto& [what, pid_file, log] :
         {std::tuple("server", machine.server_pid_file, machine.server_log),
          std::tuple("worker", machine.worker_pid_file, machine.worker_log)}) {
      if (daemons::RunningProcess(pid_file).has_value()) continue;
      const std::string cause =
          daemons::CauseFromLog(log, std::max<int64_t>(FileSize(log).value_or(0) - 4096, 0));
      TY_RETURN_IF_ERROR(StopBoth(context, machine));
      return absl::InternalError(
          absl::StrCat("the ", what, " has ended: ", cause, "\n  its log: ", log));
    }
  }
  context.Say(
      "\nstopping the worker and the server; ranks of running jobs keep running for a "
      "while, and `trainyard up` takes them over again");
  TY_RETURN_IF_ERROR(StopBoth(context, machine));
  return link::kInterrupted;
}

// Returns what is wrong with the form of --cpu_devices. The worker reads the value in full.
std::string CheckCpuDevices(const std::string& text) {
  const bool has_form = !text.empty() && text[0] >= '1' && text[0] <= '9' &&
                        text.find_first_not_of("0123456789x@,-") == std::string::npos;
  return has_form ? ""
                  : absl::StrCat("'", text, "' does not name CPU devices; write 2, or 1x2,2x1");
}

// Returns the flags that were given, checked as far as they can be without starting anything.
absl::StatusOr<UpSettings> GivenSettings(const UpOptions& options) {
  UpSettings given;
  if (!options.listen.empty()) {
    TY_RETURN_IF_ERROR(rpc::ParseAddress(options.listen).status());
    given[kListen] = options.listen;
  }
  if (!options.worker_name.empty()) {
    if (WorkerNameOf(options.worker_name) != options.worker_name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--worker-name: '", options.worker_name,
          "' is no name of a worker; expected 1 to 63 lower-case letters, digits and dashes"));
    }
    given[kWorkerName] = options.worker_name;
  }
  if (!options.cpu_devices.empty()) given["--cpu-devices"] = options.cpu_devices;
  if (options.share_cpus) given["--share-cpus"] = "";
  if (options.threads_per_device > 0) {
    given["--threads-per-device"] = absl::StrCat(options.threads_per_device);
  }
  if (!options.dataset_dir.empty()) {
    // Ranks run in folders of their own, where a relative path would lead somewhere else.
    std::error_code ignored;
    const auto absolute = std::filesystem::absolute(options.dataset_dir, ignored);
    given[kDatasetDir] = ignored ? options.dataset_dir : absolute.lexically_normal().string();
  }
  return given;
}

// The worker would start without its data sets, and every job would fail.
absl::Status CheckDatasetDir(const UpSettings& settings) {
  const auto folder = settings.find(kDatasetDir);
  std::error_code ignored;
  if (folder == settings.end() || std::filesystem::is_directory(folder->second, ignored)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--dataset-dir: there is no folder '", folder->second,
                   "'; `trainyard data fetch` gets public data sets"));
}

// Returns an error if flags are given that what runs already does not have.
absl::Status CheckRunning(const UpSettings& given, const UpSettings& running) {
  const UpSettings differing = Differing(given, running);
  if (differing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "`", UpSettingsText(differing), "` is not what runs already (", UpSettingsText(running),
      "); `trainyard down`, and then `trainyard up` with the new flags"));
}

// The daemons that run on this state directory, and their flags.
struct Running {
  std::optional<ProcessId> server;
  std::optional<ProcessId> worker;
  UpSettings flags;
};

// Starts what does not run, and remembers with which flags.
absl::Status StartMissing(const Context& context, const Running& running,
                          const UpSettings& settings, const Machine& machine) {
  if (!running.worker.has_value()) TY_RETURN_IF_ERROR(CheckDatasetDir(settings));
  if (!running.server.has_value()) TY_RETURN_IF_ERROR(StartServer(context, machine));
  if (!running.worker.has_value()) {
    const absl::Status status = StartWorker(context, settings, machine);
    if (!status.ok()) {
      // If the worker does not start, the server that was started for it is stopped again.
      if (!running.server.has_value()) {
        TY_RETURN_IF_ERROR(StopDaemon(context, machine.server_pid_file));
      }
      return status;
    }
  }
  return WriteUpSettings(machine.settings_file, settings);
}

// Brings up what does not run. Returns true if both daemons ran already. `machine` receives the
// address of the server.
absl::StatusOr<bool> BringUp(const Context& context, const UpOptions& options,
                             const UpSettings& given, Machine& machine) {
  // The lock keeps two calls of `up` at once from starting two servers and two workers. It is
  // released afterwards, because `down` and the daemons have the pid files and locks of their own.
  TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(machine.state_dir));
  UpSettings remembered;
  if (!options.reset) {
    TY_ASSIGN_OR_RETURN(remembered, ReadUpSettings(machine.settings_file));
  }
  Running running = {daemons::RunningProcess(machine.server_pid_file),
                     daemons::RunningProcess(machine.worker_pid_file), remembered};
  if (running.server.has_value()) running.flags[kListen] = running.server->note;
  if (running.worker.has_value()) running.flags[kWorkerName] = running.worker->note;
  UpSettings fixed;
  for (const auto& [flag, value] : given) {
    if ((flag == kListen ? running.server : running.worker).has_value()) fixed[flag] = value;
  }
  TY_RETURN_IF_ERROR(CheckRunning(fixed, running.flags));
  const UpSettings settings = Merged(given, remembered);
  if (running.server.has_value()) {
    machine.address = running.server->note;
  } else if (const auto listen = settings.find(kListen); listen != settings.end()) {
    machine.address = listen->second;
  }
  if (running.server.has_value() && running.worker.has_value()) return true;
  TY_RETURN_IF_ERROR(StartMissing(context, running, settings, machine));
  const UpSettings recalled = Differing(settings, given);
  if (!recalled.empty()) {
    context.Say(absl::StrCat("as before: ", UpSettingsText(recalled), "   (--reset forgets)"));
  }
  return false;
}

// Returns the server's address once both daemons of the service run and the server answers.
absl::StatusOr<std::string> WaitForService(const Context& context, const Machine& machine) {
  const absl::Duration start = context.clock.Uptime();
  while (true) {
    const auto server = daemons::RunningProcess(machine.server_pid_file);
    if (server.has_value() && daemons::RunningProcess(machine.worker_pid_file).has_value() &&
        IsServing(context, server->note)) {
      return server->note;
    }
    if (context.clock.Uptime() - start > kStartTimeout) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the service did not start within ", kStartTimeout / absl::Seconds(1),
          " s; `journalctl --user -u trainyard` and ", machine.server_log, " tell why"));
    }
    if (context.interrupt.WaitFor(kPollInterval)) return absl::CancelledError("interrupted");
  }
}

// Lets systemd start both daemons, now and whenever the machine starts.
Result UpAsService(const Context& context, const UpOptions& options, const UpSettings& given,
                   const Machine& machine) {
  const UserService service(context);
  TY_RETURN_IF_ERROR(service.Check(machine));
  for (const char* program : {"trainyard", "trainyard-server", "trainyard-worker"}) {
    TY_RETURN_IF_ERROR(FindProgram(context.surroundings.binary_dir, program).status());
  }
  {
    TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(machine.state_dir));
    UpSettings remembered;
    if (!options.reset) {
      TY_ASSIGN_OR_RETURN(remembered, ReadUpSettings(machine.settings_file));
    }
    const UpSettings settings = Merged(given, remembered);
    TY_RETURN_IF_ERROR(CheckDatasetDir(settings));
    TY_RETURN_IF_ERROR(WriteUpSettings(machine.settings_file, settings));
  }
  // Daemons that were started otherwise make room for those of the service, which take over what
  // runs.
  if (!service.IsOf(machine)) TY_RETURN_IF_ERROR(StopBoth(context, machine));
  TY_ASSIGN_OR_RETURN(const std::string remark, service.Install(machine));
  TY_ASSIGN_OR_RETURN(const std::string address, WaitForService(context, machine));
  context.Say(absl::StrCat("up, as a service of yours: server at ", address, ", state in ",
                           machine.state_dir));
  if (!remark.empty()) context.Say(absl::StrCat("  ", remark));
  context.Say(
      "  systemctl --user status trainyard    shows how it is\n"
      "  trainyard down                       stops both, and removes the service");
  return link::kOk;
}

Result Up(const Context& context, const UpOptions& options) {
  Machine machine = MachineOf(context, options.state_dir, options.listen);
  TY_RETURN_IF_ERROR(rpc::ParseAddress(machine.address).status());
  TY_ASSIGN_OR_RETURN(const UpSettings given, GivenSettings(options));
  TY_RETURN_IF_ERROR(MakeDirectories(machine.state_dir, 0700));
  if (options.service) return UpAsService(context, options, given, machine);
  TY_ASSIGN_OR_RETURN(const bool was_running, BringUp(context, options, given, machine));
  const bool is_default =
      machine.address ==
      rpc::DefaultServerAddress(context.surroundings.state_home, context.surroundings.home);
  context.Say(absl::StrCat(was_running ? "already up" : "up", ": server at ", machine.address,
                           ", state in ", machine.state_dir));
  if (!is_default && context.surroundings.server != machine.address) {
    context.Say(absl::StrCat("  export TRAINYARD_SERVER=", machine.address));
  }
  const std::string state_flag =
      options.state_dir.empty() ? "" : absl::StrCat(" --state-dir ", machine.state_dir);
  context.Say(
      absl::StrCat("  trainyard submit jobs/convnet-glyphs.yaml --follow\n"
                   "  trainyard down",
                   state_flag, "    stops both\n  trainyard up --detach", state_flag,
                   "    starts both again with the same flags, also after a reboot\n"
                   "  trainyard up --service",
                   state_flag, "   lets systemd do that"));
  if (options.detach || (was_running && !options.stay)) return link::kOk;
  context.Say("Ctrl-C stops both");
  return StayInForeground(context, machine);
}

}  // namespace

void AddUp(VerbTable& verbs) {
  verbs.Add<UpOptions>(
      "up", "Start a server and a worker on this machine", "--detach --cpu-devices 2",
      [](client::Flags& flags, UpOptions& options) {
        flags.Value("--state-dir", options.state_dir,
                    "Folder for all state (~/.local/state/trainyard)");
        flags.Value("--listen", options.listen,
                    "Address of the server (unix:<state-dir>/server/server.sock)");
        flags.Value("--worker-name", options.worker_name, "Name of the worker (the host's name)");
        flags
            .Value("--cpu-devices", options.cpu_devices,
                   "CPU devices: 2; unequal ones as devices x threads, 1x2,2x1, or as threads @ "
                   "processors of each, 1@0,1@1,1@1")
            .Check(CheckCpuDevices);
        flags.Switch("--share-cpus", options.share_cpus,
                     "CPU devices share all processors, so that there may be more of them");
        flags.Value("--threads-per-device", options.threads_per_device, "Threads of a CPU device")
            .Range(1, 1024);
        flags.Value("--dataset-dir", options.dataset_dir, "Folder of the data sets");
        flags.Switch("--reset", options.reset,
                     "Forget the flags of earlier calls, which are used again otherwise");
        flags.Switch("--detach", options.detach,
                     "Return once both are up instead of staying until Ctrl-C");
        flags.Switch("--stay", options.stay,
                     "Stay until Ctrl-C also if both ran already, as the service does");
        flags.Switch("--service", options.service,
                     "Make a service of your own systemd, which starts both with the machine");
      },
      Up);
}

}  // namespace trainyard::commands
