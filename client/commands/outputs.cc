// Implements `outputs` and `cp`, which list and download what the programs of jobs have left.
#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/checkpoint_files.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct OutputsOptions {
  std::string job;
};

struct CopyOptions {
  std::string source;  // JOB:PATH
  std::string target;
  bool is_recursive = false;
};

// The files of a job that has ended arrive some moments after its end.
constexpr absl::Duration kArrivalTimeout = absl::Seconds(30);
constexpr absl::Duration kArrivalPause = absl::Milliseconds(50);

constexpr absl::string_view kCheckpointsFolder = "checkpoints/";

// Returns the outputs of a job. If it has ended, but not all of them have arrived yet, they are
// waited for.
absl::StatusOr<v1::Outputs> GetOutputs(const Context& context, link::ServerLink& link,
                                       const std::string& job) {
  v1::GetOutputsRequest request;
  request.set_name(job);
  const absl::Duration end = context.clock.Uptime() + kArrivalTimeout;
  while (true) {
    TY_ASSIGN_OR_RETURN(v1::Outputs outputs,
                        link.Call(&v1::CheckpointService::Stub::GetOutputs, request));
    if (!outputs.is_pending() || context.clock.Uptime() >= end) return outputs;
    v1::GetJobRequest of_job;
    of_job.set_name(job);
    TY_ASSIGN_OR_RETURN(const v1::Job now, link.Call(&v1::JobService::Stub::GetJob, of_job));
    if (!output::HasEnded(now)) return outputs;
    if (context.interrupt.WaitFor(kArrivalPause)) return absl::CancelledError("interrupted");
  }
}

std::string NoneText(const std::string& job) {
  return absl::StrCat(job,
                      " has no outputs: they are kept when an attempt ends, if the spec names "
                      "them (outputs: [results/**])");
}

Result ListOutputs(const Context& context, const OutputsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string job, ResolveOne(*link, options.job));
  TY_ASSIGN_OR_RETURN(const v1::Outputs outputs, GetOutputs(context, *link, job));
  if (PrintOne(context, outputs, job)) return link::kOk;
  if (outputs.files().empty()) {
    context.Say(NoneText(job));
    return link::kOk;
  }
  using output::Table;
  Table table({{"FILE"}, {"SIZE", Table::Align::kRight}});
  for (const v1::CheckpointFile& file : outputs.files()) {
    table.AddRow({file.name(), FormatBytes(file.size())});
  }
  context.out << table.Render();
  context.Say(absl::StrCat("of attempt ", outputs.attempt(), "; `trainyard cp ",
                           output::ShortName(job), ":", outputs.files(0).name(),
                           " .` downloads one"));
  return link::kOk;
}

// Returns the path without `./` before it and `/` after it.
std::string Plain(absl::string_view path) {
  while (absl::ConsumePrefix(&path, "./") || absl::ConsumePrefix(&path, "/")) {
  }
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  return path == "." ? "" : std::string(path);
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool IsFolder(const std::string& path) {
  return absl::EndsWith(path, "/") || FileExists(JoinPath(path, "."));
}

// A file and where it goes.
struct Copy {
  v1::CheckpointFile file;
  std::string path;
};

// Finds the files that the path names. `path` is plain, and empty for all.
absl::StatusOr<std::vector<Copy>> FindCopies(const v1::Outputs& outputs, const std::string& path,
                                             const CopyOptions& options) {
  std::vector<Copy> copies;
  std::vector<std::string> names;
  const std::string below = path.empty() ? "" : absl::StrCat(path, "/");
  for (const v1::CheckpointFile& file : outputs.files()) {
    // We trust the server with content, but not with paths.
    if (!IsCheckpointFileName(file.name())) {
      return error::CorruptFile("outputs", absl::StrCat("'", file.name(), "' is no file name"));
    }
    names.push_back(file.name());
    if (file.name() == path) {
      const bool is_into = IsFolder(options.target);
      return std::vector<Copy>{
          {file, is_into ? JoinPath(options.target, BaseName(path)) : options.target}};
    }
    if (absl::StartsWith(file.name(), below)) {
      copies.push_back({file, JoinPath(options.target, file.name().substr(below.size()))});
    }
  }
  if (copies.empty()) {
    const std::string nearest = NearestWord(path, names);
    return absl::NotFoundError(absl::StrCat(
        "the job has no output '", path, "'",
        nearest.empty()
            ? absl::StrCat("; `trainyard outputs ls` shows the ", names.size(), " that it has")
            : absl::StrCat("; did you mean '", nearest, "'?")));
  }
  if (!options.is_recursive) {
    return absl::InvalidArgumentError(absl::StrCat("'", path.empty() ? "." : path,
                                                   "' is a folder with ", copies.size(),
                                                   " files; -r copies all of them"));
  }
  return copies;
}

Result CopyCheckpoint(const Context& context, link::ServerLink& link, const std::string& selector,
                      const CopyOptions& options) {
  v1::GetCheckpointRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveCheckpoint(link, selector));
  TY_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint,
                      link.Call(&v1::CheckpointService::Stub::GetCheckpoint, request));
  std::string directory = options.target;
  if (directory == "." || absl::EndsWith(directory, "/")) {
    directory = JoinPath(directory, absl::StrCat("step-", checkpoint.step()));
  }
  TY_RETURN_IF_ERROR(FetchWholeCheckpoint(context, link, checkpoint, directory));
  context.out << directory << "\n";
  return link::kOk;
}

Result CopyFiles(const Context& context, const CopyOptions& options) {
  const size_t colon = options.source.find(':');
  if (colon == std::string::npos || colon == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", options.source,
                     "' names no file of a job; expected JOB:PATH, such as 12:results/a.csv or "
                     "last:checkpoints/best"));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  const std::string selector = options.source.substr(0, colon);
  absl::string_view path = absl::string_view(options.source).substr(colon + 1);
  if (absl::ConsumePrefix(&path, kCheckpointsFolder)) {
    return CopyCheckpoint(context, *link, absl::StrCat(selector, "/", Plain(path)), options);
  }
  TY_ASSIGN_OR_RETURN(const std::string job, ResolveOne(*link, selector));
  TY_ASSIGN_OR_RETURN(const v1::Outputs outputs, GetOutputs(context, *link, job));
  if (outputs.files().empty()) return absl::NotFoundError(NoneText(job));
  TY_ASSIGN_OR_RETURN(const std::vector<Copy> copies, FindCopies(outputs, Plain(path), options));
  const OpenFileStream open = [&](grpc::ClientContext* call, const std::string& file,
                                  int64_t offset) {
    v1::DownloadOutputRequest request;
    request.set_name(job);
    request.set_file(file);
    request.set_offset(offset);
    request.set_attempt(outputs.attempt());
    return link->checkpoints().DownloadOutput(call, request);
  };
  for (const Copy& copy : copies) {
    TY_RETURN_IF_ERROR(FetchFile(context, *link, open, copy.file, copy.path, copy.file.name()));
    context.out << copy.path << "\n";
  }
  return link::kOk;
}

}  // namespace

void AddOutputs(VerbTable& verbs) {
  verbs.Group("outputs", "List the files that programs of jobs have left");
  verbs.Add<OutputsOptions>(
      "outputs ls", "List the outputs of a job", "last",
      [](client::Flags& flags, OutputsOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
      },
      ListOutputs);
  verbs.Add<CopyOptions>(
      "cp", "Download outputs or a checkpoint of a job, or resume the download",
      "-r last:results out",
      [](client::Flags& flags, CopyOptions& options) {
        flags
            .Word("JOB:PATH", options.source,
                  "A file or a folder of the job's outputs: 12:results/a.csv; JOB:. for all; "
                  "JOB:checkpoints/STEP, JOB:checkpoints/best for a checkpoint")
            .Required();
        flags.Word("TARGET", options.target, "Where it goes: a file or a folder").Required();
        flags.Switch("-r,--recursive", options.is_recursive, "Copy a folder with all in it");
      },
      CopyFiles);
}

}  // namespace trainyard::commands
