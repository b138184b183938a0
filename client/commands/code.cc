// code looks at the code that a job runs, and fetches it.
#include <fcntl.h>

#include <deque>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/code_files.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {

absl::Status PrintCode(const Context& context, link::ServerLink& link, const v1::Job& job) {
  TY_ASSIGN_OR_RETURN(const std::string archive, FetchCode(context, link, job.name()));
  TY_ASSIGN_OR_RETURN(const std::vector<CodeFile> files, ListCode(archive));
  std::deque<v1::CheckpointFile> messages;
  output::Table table({{"FILE"}, {"SIZE", output::Table::Align::kRight}, {"MODE"}});
  for (const CodeFile& file : files) {
    const code::Entry& entry = file.entry;
    if (entry.kind == code::Entry::Kind::kFolder) continue;
    const bool is_link = entry.kind == code::Entry::Kind::kLink;
    v1::CheckpointFile& message = messages.emplace_back();
    message.set_name(entry.path);
    message.set_size(entry.size);
    message.set_hash(file.hash);
    table.AddRow({entry.path, is_link ? "" : FormatBytes(entry.size),
                  is_link ? absl::StrCat("link to ", entry.target)
                          : (entry.is_executable ? "executable" : "")});
  }
  if (PrintResources(context, messages)) return absl::OkStatus();
  const std::string origin = OriginText(job.provenance().code());
  context.out << job.resolved_spec().program().code() << "\n";
  if (!origin.empty()) context.out << origin << "\n";
  context.out << table.Render();
  TY_ASSIGN_OR_RETURN(const std::string diff, FetchCodeDiff(context, link, job));
  if (!diff.empty()) context.out << "\n" << diff;
  return absl::OkStatus();
}

namespace {

struct CodeOptions {
  std::string job;
  std::string file;
  std::string output_dir;
};

absl::StatusOr<v1::Job> JobOf(link::ServerLink& link, const std::string& selector) {
  v1::GetJobRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(link, selector));
  return link.Call(&v1::JobService::Stub::GetJob, request);
}

Result ListFiles(const Context& context, const CodeOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Job job, JobOf(*link, options.job));
  TY_RETURN_IF_ERROR(PrintCode(context, *link, job));
  return link::kOk;
}

Result PrintFile(const Context& context, const CodeOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Job job, JobOf(*link, options.job));
  TY_ASSIGN_OR_RETURN(const std::string archive, FetchCode(context, *link, job.name()));
  TY_ASSIGN_OR_RETURN(
      const std::string text,
      ReadCodeFile(archive, options.file, static_cast<size_t>(code::kContentBytesMax)));
  // A terminal gets what it can show, and a pipe the bytes as they are.
  (context.terminal.out_is_terminal ? context.out : context.raw_out) << text << std::flush;
  return link::kOk;
}

Result GetFiles(const Context& context, const CodeOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::Job job, JobOf(*link, options.job));
  TY_ASSIGN_OR_RETURN(const JobId id, ParseJobName(job.name()));
  std::string directory = options.output_dir;
  if (directory.empty()) directory = absl::StrCat("job-", id.value, "-code");
  TY_RETURN_IF_ERROR(MakeDirectories(directory));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  if (!names.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", directory,
                     "' is not empty; choose another folder with -O, so that no file is mixed "
                     "up with one of the job"));
  }
  TY_ASSIGN_OR_RETURN(const std::string archive, FetchCode(context, *link, job.name()));
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(archive, O_RDONLY));
  TY_RETURN_IF_ERROR(code::Unpack(fd.get(), directory));
  context.out << directory << "\n";
  return link::kOk;
}

}  // namespace

void AddCode(VerbTable& verbs) {
  verbs.Group("code", "Look at the code that a job runs, and fetch it");
  verbs.Add<CodeOptions>(
      "code ls", "List the files, and from which commit they come", "last",
      [](client::Flags& flags, CodeOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
      },
      ListFiles);
  verbs.Add<CodeOptions>(
      "code cat", "Print a file", "last train.py",
      [](client::Flags& flags, CodeOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Word("PATH", options.file, "File, as ls names it").Required();
      },
      PrintFile);
  verbs.Add<CodeOptions>(
      "code get", "Fetch all files into a folder", "last -O out",
      [](client::Flags& flags, CodeOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Value("-O,--output-dir", options.output_dir, "Folder for the files (job-12-code)");
      },
      GetFiles);
}

}  // namespace trainyard::commands
