// trainyard-trainer: one rank of an attempt, the memory plan of a spec, what data sets there are,
// or whether a checkpoint is what it says.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"
#include "worker/trainer/data_report.h"
#include "worker/trainer/plan_report.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/verify_report.h"

namespace trainyard::trainer {
namespace {

struct Flags {
  std::string run_dir;
  int rank = 0;
  std::string transport = "auto";
  std::string plan;
  PlanOptions plan_options;
  std::string data;
  std::string dataset_dir;
  std::string verify;
};

Signals g_signals;  // outlives the thread that sets it

// Takes SIGTERM, SIGINT and SIGUSR1 in a thread of its own, with sigwait: a handler would run on
// the stack of whichever thread computes, and oneDNN's f32 GEMM points the stack pointer into its
// heap workspace, so that the frame of a signal overwrites the heap. To be called before any
// other thread starts: they inherit the blocked signals.
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
  // A peer that goes away is an error of the write, not the end of this process.
  signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<std::unique_ptr<parallel::Communicator>> ConnectRanks(
    const Flags& flags, const run_dir::Assignment& assignment) {
  if (assignment.world_size == 1) {
    return parallel::MakeLocalCommunicator(parallel::MakeLocalGroup(1), 0);
  }
  const bool one_host = static_cast<int>(assignment.ranks.size()) == assignment.world_size;
  if (flags.transport == "shm" || (flags.transport == "auto" && one_host)) {
    parallel::ShmOptions options;
    options.rank = flags.rank;
    options.world_size = assignment.world_size;
    options.run_dir = run_dir::RunDir(flags.run_dir);
    options.cancelled = &g_signals.stop;
    return parallel::ConnectShm(options);
  }
  parallel::GlooOptions options;
  options.rank = flags.rank;
  options.world_size = assignment.world_size;
  options.run_dir = run_dir::RunDir(flags.run_dir);
  options.interface = assignment.interface;
  options.cancelled = &g_signals.stop;
  return parallel::ConnectGloo(options);
}

int RunTraining(const Flags& flags) {
  StartSignalThread();
  RankOptions options{.run_dir = flags.run_dir, .rank = flags.rank, .connect = {}};
  options.connect = [&flags](const run_dir::Assignment& assignment) {
    return ConnectRanks(flags, assignment);
  };
  const run_dir::RankResult result = RunRank(options, g_signals, *Clock::Real());
  return run_dir::ExitCode(result.outcome);
}

absl::StatusOr<std::string> ReadSpec(const std::string& path) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

int PrintPlan(const Flags& flags) {
  absl::StatusOr<std::string> report = ReadSpec(flags.plan);
  if (report.ok()) {
    report = ReportPlan(*report, flags.plan_options);
  }
  if (!report.ok()) {
    std::fprintf(stderr, "trainyard-trainer: %s\n", std::string(report.status().message()).c_str());
    return run_dir::kExitUserError;
  }
  std::fputs(report->c_str(), stdout);
  return run_dir::kExitSucceeded;
}

int PrintData(const Flags& flags) {
  const absl::StatusOr<std::string> report =
      ReportData(flags.dataset_dir, /*verifies=*/flags.data == "verify");
  if (!report.ok()) {
    std::fprintf(stderr, "trainyard-trainer: %s\n", std::string(report.status().message()).c_str());
    return run_dir::kExitUserError;
  }
  std::fputs(report->c_str(), stdout);
  return run_dir::kExitSucceeded;
}

// What a verification that found a difference ends with.
constexpr int kExitDiffers = 1;

int PrintVerification(const Flags& flags) {
  const absl::StatusOr<VerifyReport> report =
      Verify({.checkpoint_dir = flags.verify,
              .dataset_dir = flags.dataset_dir,
              .format = flags.plan_options.format == PlanFormat::kJson ? VerifyFormat::kJson
                                                                       : VerifyFormat::kText},
             *Clock::Real());
  if (!report.ok()) {
    std::fprintf(stderr, "trainyard-trainer: %s\n", std::string(report.status().message()).c_str());
    return absl::IsDataLoss(report.status()) ? kExitDiffers : run_dir::kExitUserError;
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
         "of the plan: text (memory alone), table, json, layers or dot; of a verification: text or "
         "json")
      ->check(CLI::IsMember(&kFormats).description(""));
  app.add_option("--backend", plan.backend, "for the plan; a run takes it from its assignment");
  app.add_option("--threads", plan.threads, "for the plan")->check(CLI::PositiveNumber);
  app.add_option("--batch", plan.batch, "for the plan, in the place of train.global_batch")
      ->check(CLI::Range(int64_t{1}, int64_t{16'777'216}).description(""));
  app.add_option("--memory", plan.memory_bytes,
                 "for the plan: bytes that a device has; else this machine's, shared")
      ->check(CLI::PositiveNumber);
  app.add_option("--without", plan.without, "for the plan: leave out a pass; may be repeated")
      ->allow_extra_args(false);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Trains one rank of an attempt, as its run directory says."};
  app.set_version_flag("--version", std::string("trainyard-trainer ") + Version());
  auto* run_dir = app.add_option("--run_dir", flags.run_dir, "the attempt's run directory");
  app.add_option("--rank", flags.rank, "the rank that this process is")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--transport", flags.transport,
                 "how ranks talk: shm (one host), gloo (TCP), or auto: shm where all are here")
      ->check(CLI::IsMember({"auto", "shm", "gloo"}));
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
                 "beside what is recorded, and exit with 1 where they differ")
      ->excludes(run_dir);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? run_dir::kExitSucceeded : run_dir::kExitUserError;
  }
  if (!flags.plan.empty()) return PrintPlan(flags);
  if (!flags.data.empty()) return PrintData(flags);
  if (!flags.verify.empty()) return PrintVerification(flags);
  if (flags.run_dir.empty()) {
    std::fputs("trainyard-trainer: give --run_dir, or --plan; see --help\n", stderr);
    return run_dir::kExitUserError;
  }
  InitLog("trainyard-trainer", LogLevel::kInfo, LogFormat::kText);
  return RunTraining(flags);
}

}  // namespace
}  // namespace trainyard::trainer

int main(int argc, char** argv) {
  return trainyard::trainer::Main(argc, argv);
}
