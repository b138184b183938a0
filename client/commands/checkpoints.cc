// checkpoints lists, downloads and verifies checkpoints. The trainer does the verification, because
// only the trainer can evaluate a network.
#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/checkpoint_files.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct CheckpointOptions {
  // The job and the checkpoint, as JOB, JOB/WHICH, or JOB and WHICH. `verify` also takes a folder.
  std::vector<std::string> selectors;
  std::string output_dir;
  std::string dataset_dir;
};

struct ListCheckpointsOptions {
  std::string job;
};

// The trainer reads all files and evaluates the network as during training, which may take hours.
constexpr absl::Duration kVerifyTimeout = absl::Hours(48);

int64_t TotalSize(const v1::Checkpoint& checkpoint) {
  int64_t total = 0;
  for (const v1::CheckpointFile& file : checkpoint.files()) total += file.size();
  return total;
}

// Returns the metric of the newest evaluation at or before the checkpoint's step, or an empty text
// if there is none.
std::string MetricText(const v1::Checkpoint& checkpoint, const char* name,
                       std::string (*text)(double)) {
  const auto metric = checkpoint.metrics().find(name);
  return metric == checkpoint.metrics().end() ? "" : text(metric->second);
}

std::string CopyText(const v1::Checkpoint& checkpoint) {
  if (!checkpoint.copy().empty()) return checkpoint.copy();
  return checkpoint.copy_failure().empty() ? "waiting" : "failed";
}

// The reasons are long and mostly the same, so the newest one is enough.
void SayWhyNotCopied(const Context& context, const v1::ListCheckpointsResponse& response) {
  for (int i = response.checkpoints_size() - 1; i >= 0; --i) {
    const v1::Checkpoint& checkpoint = response.checkpoints(i);
    if (checkpoint.copy_failure().empty()) continue;
    context.Say(absl::StrCat(checkpoint.name(),
                             " is not in the bucket: ", checkpoint.copy_failure(),
                             checkpoint.damage().empty() ? "; the server tries again" : ""));
    return;
  }
}

// Finds the checkpoint that the command names.
absl::StatusOr<v1::Checkpoint> AskedCheckpoint(link::ServerLink& link,
                                               const CheckpointOptions& options) {
  v1::GetCheckpointRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(),
                      ResolveCheckpoint(link, absl::StrJoin(options.selectors, "/")));
  return link.Call(&v1::CheckpointService::Stub::GetCheckpoint, request);
}

// Prints what the trainer reports about a folder.
Result VerifyFolder(const Context& context, const std::string& folder,
                    const std::string& dataset_dir) {
  TY_ASSIGN_OR_RETURN(const std::string trainer,
                      FindProgram(context.surroundings.binary_dir, "trainyard-trainer"));
  const bool as_json =
      context.options.format == Format::kJson || context.options.format == Format::kJsonLines;
  std::vector<std::string> args = {trainer, "--verify", folder, "--format",
                                   as_json ? "json" : "text"};
  if (!dataset_dir.empty()) {
    args.insert(args.end(), {"--dataset_dir", dataset_dir});
  }
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result,
                      daemons::RunChild(args, "", kVerifyTimeout));
  context.out << result.out;
  if (result.exit_code == 0) return link::kOk;
  // If there is no table, the trainer has said why.
  if (!result.out.empty()) return link::kFailed;
  return absl::DataLossError(std::string(
      absl::StripPrefix(absl::StripAsciiWhitespace(result.err), "trainyard-trainer: ")));
}

Result ListCheckpoints(const Context& context, const ListCheckpointsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::ListCheckpointsRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_parent(), ResolveOne(*link, options.job));
  TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                      link->Call(&v1::CheckpointService::Stub::ListCheckpoints, request));
  if (PrintResources(context, response.checkpoints())) return link::kOk;
  if (response.checkpoints().empty()) {
    context.Say(absl::StrCat(request.parent(), " has no checkpoint yet"));
    return link::kOk;
  }
  using output::Table;
  std::vector<Table::Column> columns = {{"CHECKPOINT"},
                                        {"STEP", Table::Align::kRight},
                                        {"ATTEMPT", Table::Align::kRight},
                                        {"SIZE", Table::Align::kRight},
                                        {"ACCURACY", Table::Align::kRight},
                                        {"LOSS", Table::Align::kRight},
                                        {"CREATED"},
                                        {"BEST"}};
  const bool has_damage =
      std::any_of(response.checkpoints().begin(), response.checkpoints().end(),
                  [](const v1::Checkpoint& checkpoint) { return !checkpoint.damage().empty(); });
  // A server without a bucket has no copies to tell of.
  const bool has_copies =
      std::any_of(response.checkpoints().begin(), response.checkpoints().end(),
                  [](const v1::Checkpoint& checkpoint) {
                    return !checkpoint.copy().empty() || !checkpoint.copy_failure().empty();
                  });
  if (has_copies) columns.push_back({"COPY"});
  if (has_damage) columns.push_back({"DAMAGE"});
  Table table(std::move(columns));
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    std::vector<std::string> row = {checkpoint.name(),
                                    absl::StrCat(checkpoint.step()),
                                    absl::StrCat(checkpoint.attempt()),
                                    FormatBytes(TotalSize(checkpoint)),
                                    MetricText(checkpoint, "test.accuracy", output::PercentText),
                                    MetricText(checkpoint, "test.loss", output::NumberText),
                                    output::TimeText(checkpoint.create_time()),
                                    checkpoint.is_best() ? "*" : ""};
    if (has_copies) row.push_back(CopyText(checkpoint));
    if (has_damage) row.push_back(checkpoint.damage());
    table.AddRow(std::move(row));
  }
  context.out << table.Render();
  SayWhyNotCopied(context, response);
  return link::kOk;
}

Result GetCheckpoint(const Context& context, const CheckpointOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint, AskedCheckpoint(*link, options));
  TY_ASSIGN_OR_RETURN(const CheckpointId id, ParseCheckpointName(checkpoint.name()));
  std::string directory = options.output_dir;
  if (directory.empty()) directory = absl::StrCat("job-", id.job.value, "-step-", id.step);
  context.Say(absl::StrCat(checkpoint.name(), "  ", FormatBytes(TotalSize(checkpoint))));
  TY_RETURN_IF_ERROR(FetchWholeCheckpoint(context, *link, checkpoint, directory));
  if (!PrintOne(context, checkpoint, checkpoint.name())) context.out << directory << "\n";
  context.Say("every hash is right");
  return link::kOk;
}

Result VerifyCheckpoint(const Context& context, const CheckpointOptions& options) {
  const std::string& first = options.selectors[0];
  // A single word that is the name of an existing folder means that folder. If there is a second
  // word, the first is a job.
  if (options.selectors.size() == 1 && FileExists(first)) {
    return VerifyFolder(context, first, options.dataset_dir);
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint, AskedCheckpoint(*link, options));
  std::string directory = options.output_dir;
  const bool is_kept = !directory.empty();
  if (!is_kept) {
    TY_ASSIGN_OR_RETURN(directory, MakeTemporaryDirectory());
  }
  const auto remove = absl::MakeCleanup([&] {
    if (!is_kept) (void)RemoveTree(directory);
  });
  context.Say(absl::StrCat(checkpoint.name(), "  ", FormatBytes(TotalSize(checkpoint))));
  TY_RETURN_IF_ERROR(FetchWholeCheckpoint(context, *link, checkpoint, directory));
  return VerifyFolder(context, directory, options.dataset_dir);
}

}  // namespace

void AddCheckpoints(VerbTable& verbs) {
  verbs.Group("checkpoints", "List, download and verify checkpoints");
  verbs.Add<ListCheckpointsOptions>(
      "checkpoints ls", "List the checkpoints of a job", "last",
      [](client::Flags& flags, ListCheckpointsOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
      },
      ListCheckpoints);
  verbs.Add<CheckpointOptions>(
      "checkpoints get", "Download a checkpoint, or resume its download", "last -O out",
      [](client::Flags& flags, CheckpointOptions& options) {
        flags
            .Words("CHECKPOINT", options.selectors,
                   "A job for its newest checkpoint, JOB/STEP, or JOB best: last, 12/600")
            .Required()
            .Count(1, 2);
        flags.Value("-O,--output-dir", options.output_dir,
                    "Folder for the files (job-12-step-600)");
      },
      GetCheckpoint);
  verbs.Add<CheckpointOptions>(
      "checkpoints verify", "Recompute a checkpoint's hashes and its evaluation", "last best",
      [](client::Flags& flags, CheckpointOptions& options) {
        flags.Words("CHECKPOINT", options.selectors, "As for get, or a folder that holds one")
            .Required()
            .Count(1, 2);
        flags.Value("-O,--output-dir", options.output_dir,
                    "Folder for the download (a temporary one)");
        flags.Value("--dataset-dir", options.dataset_dir,
                    "Folder of the data sets; without the job's, only hashes are compared");
      },
      VerifyCheckpoint);
}

}  // namespace trainyard::commands
