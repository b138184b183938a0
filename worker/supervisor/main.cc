// trainyard-supervisor owns the ranks of one attempt on one host.
#include <csignal>
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/program_paths.h"
#include "common/base/version.h"
#include "worker/run_dir/assignment.h"
#include "worker/supervisor/supervisor.h"

namespace trainyard {
namespace {

constexpr char kUsage[] =
    "usage: trainyard-supervisor --run_dir DIR [--trainer PATH]\n"
    "Starts the ranks of DIR/assignment.json and writes down how they end.\n"
    "  --trainer PATH  the program that is a rank; default: trainyard-trainer beside this one\n";

// Two flags are not worth a library in the smallest of the programs.
absl::StatusOr<supervisor::SupervisorOptions> ParseFlags(int argc, char** argv) {
  supervisor::SupervisorOptions options;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    std::string* value = nullptr;
    if (absl::ConsumePrefix(&argument, "--run_dir")) {
      value = &options.run_dir;
    } else if (absl::ConsumePrefix(&argument, "--trainer")) {
      value = &options.trainer;
    }
    if (value != nullptr && absl::ConsumePrefix(&argument, "=")) {
      *value = std::string(argument);
    } else if (value != nullptr && argument.empty() && i + 1 < argc) {
      *value = argv[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat("cannot understand '", argv[i], "'"));
    }
  }
  if (options.run_dir.empty()) return absl::InvalidArgumentError("--run_dir is missing");
  return options;
}

// The default is trainyard-trainer, trainyard-trainer-<backend> or trainyard-program, beside this
// program.
std::string DefaultTrainer(const std::string& run_dir) {
  const auto assignment = run_dir::ReadAssignment(run_dir::RunDir(run_dir));
  if (assignment.ok() && assignment->backend == run_dir::kProgramBackend) {
    return SiblingProgram("trainyard-program");
  }
  const bool other = assignment.ok() && assignment->backend != "cpu";
  return SiblingProgram(
      absl::StrCat("trainyard-trainer", other ? "-" : "", other ? assignment->backend : ""));
}

int Main(int argc, char** argv) {
  auto options = ParseFlags(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n%s", std::string(options.status().message()).c_str(), kUsage);
    return 2;
  }
  // The supervisor must watch over the ranks even if its log cannot be written any more.
  (void)signal(SIGPIPE, SIG_IGN);
  InitLog("trainyard-supervisor", LogLevel::kInfo, LogFormat::kText);
  if (options->trainer.empty()) options->trainer = DefaultTrainer(options->run_dir);
  options->stack_program = SiblingProgram("trainyard-stack");
  const absl::Status status = supervisor::Supervise(*options, *Clock::Real());
  if (!status.ok()) {
    LogError("nothing was run", {{"error", std::string(status.message())}});
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trainyard

int main(int argc, char** argv) {
  return trainyard::Main(argc, argv);
}
