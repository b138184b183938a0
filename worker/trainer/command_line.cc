// Reads the flags and chooses among the program's four tasks: train, plan, list data sets, and
// verify a checkpoint.
#include "worker/trainer/command_line.h"

#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/flag_style.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "worker/parallel/host/host_groups.h"
#include "worker/trainer/pipeline/pipeline_executable.h"
#include "worker/trainer/report/data_report.h"
#include "worker/trainer/report/plan_report.h"
#include "worker/trainer/report/verify_report.h"
#include "worker/trainer/trainer.h"

namespace trainyard::trainer {
namespace {

struct Flags {
  std::string run_dir;
  int rank = 0;
  std::string transport = "auto";
  int connect_seconds = 60;
  std::string plan;
  PlanOptions plan_options;
  std::string data;
  std::string dataset_dir;
  std::string verify;
  DeviceFlags device;
};

Signals g_signals;  // must outlive the thread that sets it

// Takes SIGTERM, SIGINT and SIGUSR1 in a thread of its own, with sigwait: a handler would run on
// the stack of whichever thread computes, and oneDNN's f32 GEMM points the stack pointer into its
// heap workspace, so that the frame of a signal overwrites the heap. It must be called before any
// other thread starts, since threads inherit the blocked signals.
void StartSignalThread() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&taken, signal);
  pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  std::thread([taken] {
    while (true) {
      int signal = 0;
      if (sigwait(&taken, &signal) != 0) continue;
      if (signal == SIGUSR1) {
        g_signals.checkpoint_requests.fetch_add(1);
      } else {
        g_signals.stop.store(true);
      }
    }
  }).detach();
  // If a peer goes away, the write fails, but the process does not end.
  signal(SIGPIPE, SIG_IGN);
}

// Shared memory is used if all ranks are on this host, unless a flag says otherwise.
parallel::ConnectGroup HostLines(const Flags& flags, const run_dir::Assignment& assignment) {
  const bool one_host = static_cast<int>(assignment.ranks.size()) == assignment.world_size;
  const bool is_shm = flags.transport == "shm" || (flags.transport != "gloo" && one_host);
  return parallel::HostGroups(
      {.transport = is_shm ? parallel::HostTransport::kShm : parallel::HostTransport::kGloo,
       .rank = flags.rank,
       .world_size = assignment.world_size,
       .run_dir = run_dir::RunDir(flags.run_dir),
       .interface = assignment.interface,
       .worker = assignment.worker,
       .connect_timeout = absl::Seconds(flags.connect_seconds),
       .cancelled = &g_signals.stop});
}

absl::StatusOr<Communicators> ConnectRanks(const Program& program, const Flags& flags,
                                           const run_dir::Assignment& assignment,
                                           engine::MemoryKind arena) {
  Communicators communicators;
  communicators.connect_group = HostLines(flags, assignment);
  TY_ASSIGN_OR_RETURN(communicators.host, communicators.connect_group({}));
  if (assignment.world_size == 1 || arena == engine::MemoryKind::kHost) return communicators;
  const DeviceGang gang = {.run_dir = run_dir::RunDir(flags.run_dir),
                           .assignment = assignment,
                           .rank = flags.rank,
                           .transport = flags.transport,
                           .cancelled = &g_signals.stop};
  communicators.make_device_exchange = [&program, gang](DeviceExchangeRequest request) {
    return program.device->MakeExchange(gang, std::move(request));
  };
  communicators.make_device_link = [&program, gang](DeviceLinkRequest request) {
    return program.device->MakeLink(gang, std::move(request));
  };
  return communicators;
}

int RunTraining(const Program& program, const Flags& flags) {
  StartSignalThread();
  RankOptions options{.run_dir = flags.run_dir,
                      .rank = flags.rank,
                      .connect = {},
                      .shares_memory = flags.transport == "shm" || flags.transport == "auto"};
  options.connect = [&](const run_dir::Assignment& assignment, engine::MemoryKind arena) {
    return ConnectRanks(program, flags, assignment, arena);
  };
  if (program.device != nullptr) {
    options.choose_device = [&program](const run_dir::Assignment& assignment,
                                       run_dir::RankAssignment& rank) {
      return program.device->Choose(assignment, rank);
    };
  }
  const run_dir::RankResult result = RunRank(options, g_signals, *Clock::Real());
  return run_dir::ExitCode(result.outcome);
}

absl::StatusOr<std::string> ReadSpec(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// Prints why the program ends, and returns its exit code.
int Fail(const Program& program, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", program.name.c_str(), std::string(status.message()).c_str());
  // There is no device here, or none now. The same command may succeed elsewhere.
  return absl::IsUnavailable(status) ? run_dir::kExitTransient : run_dir::kExitUserError;
}

absl::StatusOr<std::string> MakePlan(const Program& program, const Flags& flags) {
  TY_ASSIGN_OR_RETURN(const std::string spec, ReadSpec(flags.plan));
  PlanOptions options = flags.plan_options;
  // A measurement on the host says nothing about a GPU.
  options.measures_machine = program.device == nullptr;
  if (program.device != nullptr && options.backend == program.backend &&
      options.memory_bytes == 0) {
    TY_ASSIGN_OR_RETURN(options.memory_bytes, program.device->MemoryBytes());
  }
  return ReportPlan(spec, options);
}

int PrintPlan(const Program& program, const Flags& flags) {
  const absl::StatusOr<std::string> report = MakePlan(program, flags);
  if (!report.ok()) return Fail(program, report.status());
  std::fputs(report->c_str(), stdout);
  return run_dir::kExitSucceeded;
}

int PrintData(const Program& program, const Flags& flags) {
  const absl::StatusOr<std::string> report =
      ReportData(flags.dataset_dir, /*verifies=*/flags.data == "verify");
  if (!report.ok()) return Fail(program, report.status());
  std::fputs(report->c_str(), stdout);
  return run_dir::kExitSucceeded;
}

// The exit code of a verification that found a difference.
constexpr int kExitDiffers = 1;

int PrintVerification(const Program& program, const Flags& flags) {
  const absl::StatusOr<VerifyReport> report =
      Verify({.checkpoint_dir = flags.verify,
              .dataset_dir = flags.dataset_dir,
              .format = flags.plan_options.format == PlanFormat::kJson ? VerifyFormat::kJson
                                                                       : VerifyFormat::kText},
             *Clock::Real());
  if (!report.ok()) {
    const int code = Fail(program, report.status());
    return absl::IsDataLoss(report.status()) ? kExitDiffers : code;
  }
  std::fputs(report->text.c_str(), stdout);
  return report->is_right ? run_dir::kExitSucceeded : kExitDiffers;
}

void AddPlanOptions(CLI::App& app, PlanOptions& plan) {
  static const std::map<std::string, PlanFormat> kFormats = {{"text", PlanFormat::kText},
                                                             {"table", PlanFormat::kTable},
                                                             {"json", PlanFormat::kJson},
                                                             {"layers", PlanFormat::kLayers},
                                                             {"dot", PlanFormat::kDot}};
  app.add_option_function<std::string>(
         "--format", [&plan](const std::string& name) { plan.format = kFormats.at(name); },
         "of the plan: text (memory only), table, json, layers or dot; of a verification: text or "
         "json")
      ->check(CLI::IsMember(&kFormats).description(""));
  app.add_option("--backend", plan.backend, "for the plan; a run takes it from its assignment");
  app.add_option("--threads", plan.threads, "for the plan")->check(CLI::PositiveNumber);
  app.add_option("--batch", plan.batch, "for the plan, instead of train.global_batch")
      ->check(CLI::Range(int64_t{1}, int64_t{16'777'216}).description(""));
  app.add_option("--memory", plan.memory_bytes,
                 "for the plan: bytes that a device has; else this machine's, shared")
      ->check(CLI::PositiveNumber);
  app.add_option("--without", plan.without, "for the plan: leave out a pass; may be repeated")
      ->allow_extra_args(false);
}

void AddRunOptions(CLI::App& app, const Program& program, Flags& flags) {
  app.add_option("--rank", flags.rank, "the rank that this process is")
      ->check(CLI::NonNegativeNumber);
  std::vector<std::string> transports = {"auto", "shm", "gloo"};
  std::string meaning =
      "how ranks talk: shm (one host), gloo (TCP), or auto: shm if all are on this host";
  if (program.device != nullptr) {
    transports.insert(transports.end(), {"nccl", "staged"});
    absl::StrAppend(&meaning,
                    "; gradients and values between stages on devices: nccl, staged (by way of "
                    "the host), or else nccl if each rank has a GPU of its own and it connects");
  }
  app.add_option("--transport", flags.transport, meaning)->check(CLI::IsMember(transports));
  app.add_option("--connect_seconds", flags.connect_seconds,
                 "how long to wait for the other ranks to appear and connect")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (program.device == nullptr) return;
  app.add_option("--plan_cache", flags.device.plan_cache,
                 "folder of the choices among cuDNN's plans, for all runs; default: "
                 "trainyard/cudnn_plans below $XDG_CACHE_HOME or ~/.cache");
  app.add_option("--device_description", flags.device.description,
                 "with --plan: cuDNN's description of a device, a JSON file, instead of a GPU")
      ->check(CLI::ExistingFile.description(""));
}

}  // namespace

int RunCommandLine(int argc, char** argv, const Program& program) {
  Flags flags;
  flags.plan_options.backend = program.backend;
  CLI::App app{"Trains one rank of an attempt, as its run directory says.", program.name};
  app.set_version_flag("--version", absl::StrCat(program.name, " ", Version()));
  auto* run_dir = app.add_option("--run_dir", flags.run_dir, "the attempt's run directory");
  AddRunOptions(app, program, flags);
  auto* plan = app.add_option("--plan", flags.plan,
                              "print the plan of a spec in JSON (a file, or - for standard input) "
                              "and exit");
  plan->excludes(run_dir);
  AddPlanOptions(app, flags.plan_options);
  auto* dataset_dir =
      app.add_option("--dataset_dir", flags.dataset_dir, "with --data or --verify: the folder");
  app.add_option("--data", flags.data,
                 "print what data sets lie in --dataset_dir, as JSON, and exit: ls, or verify, "
                 "which reads all of them")
      ->check(CLI::IsMember({"ls", "verify"}))
      ->needs(dataset_dir)
      ->excludes(run_dir);
  app.add_option("--verify", flags.verify,
                 "recompute the hashes and the evaluation of a checkpoint's folder, print both "
                 "beside what is recorded, and exit with 1 if they differ")
      ->excludes(run_dir);
  try {
    std::vector<std::string> args = ReversedArgs(argc, argv, FlagStyle::kUnderscores);
    app.parse(args);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? run_dir::kExitSucceeded : run_dir::kExitUserError;
  }
  if (!flags.data.empty()) return PrintData(program, flags);
  if (flags.plan.empty() && flags.verify.empty() && flags.run_dir.empty()) {
    std::fprintf(stderr, "%s: give --run_dir, or --plan; see --help\n", program.name.c_str());
    return run_dir::kExitUserError;
  }
  InitLog(program.name, LogLevel::kInfo, LogFormat::kText);
  if (program.device != nullptr) {
    const absl::Status known = program.device->Register(flags.device);
    if (!known.ok()) return Fail(program, known);
  }
  if (!flags.plan.empty()) return PrintPlan(program, flags);
  if (!flags.verify.empty()) return PrintVerification(program, flags);
  return RunTraining(program, flags);
}

}  // namespace trainyard::trainer
