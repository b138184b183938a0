// Declares the flags of trainyard-worker, with their defaults and their help.
#include "worker/agent/worker_flags.h"

#include <cstdlib>
#include <map>

#include "CLI/CLI.hpp"
#include "common/base/files.h"
#include "common/base/flag_style.h"
#include "common/base/program_paths.h"
#include "common/base/version.h"
#include "common/base/worker_name.h"
#include "common/daemon/flag_file.h"
#include "common/rpc/address.h"

namespace trainyard::agent {
namespace {

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

void SetDefaults(WorkerFlags& flags) {
  const std::string state_home = Variable("XDG_STATE_HOME");
  const std::string home = Variable("HOME");
  flags.server = rpc::DefaultServerAddress(state_home, home);
  flags.state_dir = JoinPath(StateHome(state_home, home), "worker");
  flags.name = WorkerNameOf(Hostname());
  flags.trainer = SiblingProgram("trainyard-trainer");
  flags.supervisor = SiblingProgram("trainyard-supervisor");
}

}  // namespace

std::optional<int> ReadWorkerFlags(int argc, char** argv, WorkerFlags& flags) {
  SetDefaults(flags);
  CLI::App app(
      "Runs the ranks of jobs on this host, for a trainyard-server. Ending it leaves its "
      "jobs running; the next one on the same state directory adopts them.",
      "trainyard-worker");
  app.set_version_flag("--version", Version());
  AddFlagFile(app);
  app.option_defaults()->always_capture_default();
  app.add_option("--server", flags.server, "unix:/path, or tls://host:port");
  app.add_option("--join_token_file", flags.join_token_file,
                 "file with the token of `trainyard workers invite`, for the first start with a "
                 "server of another host; in a pod, it may be a projected token of the audience "
                 "trainyard-worker");
  app.add_option("--server_fingerprint", flags.server_fingerprint,
                 "fingerprint of that server's certificate, as the invitation shows it");
  app.add_option("--state_dir", flags.state_dir, "folder of run directories and identity");
  app.add_option("--name", flags.name,
                 "name in the pool, [a-z0-9-]{1,63}; other characters become dashes");
  app.add_option(
      "--cpu_devices", flags.cpu_devices,
      "CPU devices to offer: their number, 0 for as many as fit; unequal ones as devices "
      "x threads (1x2,2x1), or as threads @ processors of each (1@0,1@1,1@1)");
  app.add_option("--threads_per_device", flags.cpu.threads_per_device,
                 "threads and processors of a CPU device; 0: processors / devices");
  app.add_flag("--share_cpus", flags.cpu.share,
               "CPU devices share all processors, so that there may be more of them");
  app.add_option("--reserve_cpus", flags.reserved.cpus,
                 "processors that no job gets; the first ones of this host")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--reserve_memory", flags.reserved.memory_bytes, "memory that no job gets: 4GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--dataset_dir", flags.dataset_dir, "folder of the data sets");
  app.add_option(
      "--interface", flags.interface,
      "where ranks listen if their gang is on this host only: an interface, an address, or a "
      "network");
  app.add_option("--address", flags.address,
                 "where other hosts reach our ranks: an interface, an address, or a network "
                 "(10.1.0.0/16); empty: the interface of the default route");
  app.add_option("--label", flags.labels, "key=value that jobs may ask for; may be repeated")
      ->allow_extra_args(false);
  const std::map<std::string, RunAs> run_as = {
      {"self", RunAs::kSelf}, {"owner", RunAs::kOwner}, {"anyone", RunAs::kAnyone}};
  app.add_option("--run_as", flags.run_as,
                 "whose jobs run here, and as whom. self: those of this daemon's user, as that "
                 "user. owner: everybody's, each as the account of its owner; the daemon must be "
                 "root. anyone: everybody's, all as this daemon's user, so that they can read and "
                 "disturb each other")
      ->transform(CLI::CheckedTransformer(run_as));
  app.add_option("--jobs_of", flags.jobs_of,
                 "with --run_as anyone: the only user whose jobs run here; empty: everybody's");
  app.add_flag("--root_jobs", flags.root_jobs,
               "with --run_as owner: run jobs of root too, as root; by default they are refused");
  app.add_option("--rank_core_bytes", flags.rank_core_bytes,
                 "with --run_as owner: the largest core file of a rank; 0: none")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rank_open_files", flags.rank_open_files,
                 "with --run_as owner: how many files a rank may have open")
      ->check(CLI::Range(64, 1 << 20));
  app.add_option("--cgroup", flags.cgroup,
                 "control group (cgroup v2) that is delegated to this daemon, below which each "
                 "attempt gets its own: a path such as /system.slice/trainyard-jobs.service; auto: "
                 "that of the unit trainyard-jobs beside this daemon's own, or its own; none")
      ->check([](const std::string& text) {
        const bool is_right = text == "auto" || text == "none" || text.rfind('/', 0) == 0;
        return is_right ? "" : "expected auto, none, or a path that begins with /";
      });
  app.add_option("--rank_processes", flags.rank_processes,
                 "how many processes and threads a rank may have; where it has no control group, "
                 "with --run_as owner, all of its owner on this host")
      ->check(CLI::Range(64, 1 << 22));
  app.add_option("--trainer", flags.trainer, "program that is a rank (cpu backend)");
  app.add_option("--supervisor", flags.supervisor, "program that owns an attempt's ranks");
  app.add_option("--nvml", flags.nvml, "NVIDIA's management library");
  app.add_option("--device_metrics_interval", flags.device_metrics_interval,
                 "time between two points of the metrics of a GPU on which a rank runs");
  app.add_option(
      "--drain_on_stop", flags.drain_on_stop,
      "when this daemon is told to end (SIGTERM), it first lets its jobs write "
      "checkpoints and go on elsewhere, for at most this long; 0s: they keep running "
      "here. This is for containers and rented hosts, where nothing outlives the daemon");
  const std::map<std::string, LogFormat> formats = {{"text", LogFormat::kText},
                                                    {"json", LogFormat::kJson}};
  app.add_option("--log_format", flags.log_format, "text or json")
      ->transform(CLI::CheckedTransformer(formats));
  try {
    std::vector<std::string> args = ReversedArgs(argc, argv, FlagStyle::kUnderscores);
    app.parse(args);
  } catch (const CLI::ParseError& end) {
    return app.exit(end);
  }
  // Nodes of Kubernetes have dots in their names.
  flags.name = WorkerNameOf(flags.name);
  return std::nullopt;
}

}  // namespace trainyard::agent
