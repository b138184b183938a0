// up starts a server and a worker on this machine.
#include <unistd.h>

#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/machine.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/daemons/log_tail.h"
#include "client/daemons/pid_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
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
  bool detach = false;
};

// A server that recovers a large store takes seconds to start.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr absl::Duration kStopGrace = absl::Seconds(10);

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
absl::Status WaitUntil(const Context& context, const Started* daemon, absl::string_view what,
                       Question question) {
  const absl::Duration start = context.clock.Uptime();
  while (true) {
    if (question()) return absl::OkStatus();
    int exit_code = 0;
    if (daemon != nullptr && daemons::HasEnded(daemon->pid, exit_code)) {
      return EndedEarly(*daemon, exit_code);
    }
    if (context.clock.Uptime() - start > kStartTimeout) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, " within ", kStartTimeout / absl::Seconds(1), " s"));
    }
    if (context.interrupt.WaitFor(kPollInterval)) return absl::CancelledError("interrupted");
  }
}

bool IsServing(const Context& context, const std::string& address) {
  const auto link = link::ServerLink::Connect(address, context.interrupt, absl::Seconds(1));
  return link.ok() && (*link)
                          ->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest(),
                                 absl::Seconds(2))
                          .ok();
}

bool IsRegistered(link::ServerLink& link, const std::string& worker) {
  v1::GetWorkerRequest request;
  request.set_name(WorkerName(worker));
  const auto answer = link.Call(&v1::FleetService::Stub::GetWorker, request, absl::Seconds(2));
  return answer.ok() && answer->state() == v1::WORKER_STATE_ACTIVE;
}

absl::Status StartServer(const Context& context, const Machine& machine) {
  TY_ASSIGN_OR_RETURN(const Started server,
                      Start(context, "server",
                            {"--state_dir", machine.server_state_dir, "--listen", machine.address},
                            machine.server_log, machine.server_pid_file, machine.address));
  absl::Status status = WaitUntil(context, &server, "the server did not answer",
                                  [&] { return IsServing(context, machine.address); });
  if (!status.ok()) unlink(machine.server_pid_file.c_str());
  return status;
}

absl::Status StartWorker(const Context& context, const UpOptions& options, const Machine& machine,
                         const std::string& name) {
  std::vector<std::string> args = {
      "--server", machine.address, "--state_dir", machine.worker_state_dir, "--name", name};
  const auto add = [&args](const char* flag, const std::string& value) {
    args.insert(args.end(), {flag, value});
  };
  if (!options.cpu_devices.empty()) add("--cpu_devices", options.cpu_devices);
  if (options.share_cpus) args.push_back("--share_cpus");
  if (options.threads_per_device > 0) {
    add("--threads_per_device", absl::StrCat(options.threads_per_device));
  }
  if (!options.dataset_dir.empty()) {
    // Ranks run in folders of their own, where a relative path would lead somewhere else.
    std::error_code ignored;
    const auto absolute = std::filesystem::absolute(options.dataset_dir, ignored);
    add("--dataset_dir", ignored ? options.dataset_dir : absolute.lexically_normal().string());
  }
  TY_ASSIGN_OR_RETURN(const auto link, link::ServerLink::Connect(machine.address, context.interrupt,
                                                                 absl::Seconds(5)));
  TY_ASSIGN_OR_RETURN(const Started worker, Start(context, "worker", args, machine.worker_log,
                                                  machine.worker_pid_file, name));
  absl::Status status = WaitUntil(context, &worker, "the worker did not register",
                                  [&] { return IsRegistered(*link, name); });
  if (!status.ok()) unlink(machine.worker_pid_file.c_str());
  return status;
}

// Stops both daemons, the worker first. The ranks of running jobs continue under their supervisors.
absl::Status StopBoth(const Context& context, const Machine& machine) {
  for (const std::string& pid_file : {machine.worker_pid_file, machine.server_pid_file}) {
    const auto process = daemons::RunningProcess(pid_file);
    if (process.has_value()) {
      TY_RETURN_IF_ERROR(daemons::StopProcess(*process, kStopGrace, context.clock));
    }
    unlink(pid_file.c_str());
  }
  return absl::OkStatus();
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

Result Up(const Context& context, const UpOptions& options) {
  Machine machine = MachineOf(context, options.state_dir, options.listen);
  TY_RETURN_IF_ERROR(rpc::ParseAddress(machine.address).status());
  TY_RETURN_IF_ERROR(MakeDirectories(machine.state_dir, 0700));
  const std::string worker_name =
      options.worker_name.empty() ? WorkerNameOf(Hostname()) : options.worker_name;
  bool was_running = true;
  {
    // The lock keeps two calls of `up` at once from starting two servers and two workers. It is
    // released afterwards, because `down` and the daemons have the pid files and locks of their
    // own.
    TY_ASSIGN_OR_RETURN(const DirectoryLock lock, DirectoryLock::Acquire(machine.state_dir));
    const auto server = daemons::RunningProcess(machine.server_pid_file);
    const auto worker = daemons::RunningProcess(machine.worker_pid_file);
    if (server.has_value()) {
      if (!options.listen.empty() && server->note != machine.address) {
        return absl::FailedPreconditionError(
            absl::StrCat("a server runs on this state directory already, at ", server->note,
                         "; stop it with `trainyard down` first"));
      }
      machine.address = server->note;
    } else {
      was_running = false;
      TY_RETURN_IF_ERROR(StartServer(context, machine));
    }
    if (!worker.has_value()) {
      was_running = false;
      const absl::Status status = StartWorker(context, options, machine, worker_name);
      if (!status.ok()) {
        // If the worker does not start, the server that was started for it is stopped again.
        if (!server.has_value()) TY_RETURN_IF_ERROR(StopBoth(context, machine));
        return status;
      }
    }
  }
  const bool is_default =
      machine.address ==
      rpc::DefaultServerAddress(context.surroundings.state_home, context.surroundings.home);
  context.Say(absl::StrCat(was_running ? "already up" : "up", ": server at ", machine.address,
                           ", state in ", machine.state_dir));
  if (!is_default && context.surroundings.server != machine.address) {
    context.Say(absl::StrCat("  export TRAINYARD_SERVER=", machine.address));
  }
  const std::string state_flag =
      options.state_dir.empty() ? "" : absl::StrCat(" --state_dir ", machine.state_dir);
  context.Say(
      absl::StrCat("  trainyard submit jobs/convnet-glyphs.yaml --follow\n"
                   "  trainyard down",
                   state_flag, "    stops both"));
  if (options.detach || was_running) return link::kOk;
  context.Say("Ctrl-C stops both");
  return StayInForeground(context, machine);
}

}  // namespace

void AddUp(VerbTable& verbs) {
  verbs.Add<UpOptions>(
      "up", "Start a server and a worker on this machine", "--detach --cpu_devices 2",
      [](client::Flags& flags, UpOptions& options) {
        flags.Value("--state_dir", options.state_dir,
                    "Folder for all state (~/.local/state/trainyard)");
        flags.Value("--listen", options.listen,
                    "Address of the server (unix:<state_dir>/server/server.sock)");
        flags.Value("--worker_name", options.worker_name, "Name of the worker (the host's name)");
        flags
            .Value("--cpu_devices", options.cpu_devices,
                   "CPU devices: 2; unequal ones as devices x threads, 1x2,2x1, or as threads @ "
                   "processors of each, 1@0,1@1,1@1")
            .Check(CheckCpuDevices);
        flags.Switch("--share_cpus", options.share_cpus,
                     "CPU devices share all processors, so that there may be more of them");
        flags.Value("--threads_per_device", options.threads_per_device, "Threads of a CPU device")
            .Range(1, 1024);
        flags.Value("--dataset_dir", options.dataset_dir, "Folder of the data sets");
        flags.Switch("--detach", options.detach,
                     "Return once both are up instead of staying until Ctrl-C");
      },
      Up);
}

}  // namespace trainyard::commands
