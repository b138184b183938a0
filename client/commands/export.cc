// export writes a job into one file, which another server takes in and anybody can run again.
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/export_job.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct ExportFlags {
  std::string job;
  std::string output;
  ExportOptions what;
};

std::string ContentText(const Exported& exported) {
  std::vector<std::string> parts = {"its spec and its history"};
  if (exported.has_code) parts.emplace_back("its code");
  if (exported.points > 0) parts.push_back(absl::StrCat(FormatCount(exported.points), " points"));
  if (exported.checkpoints > 0) {
    parts.push_back(Counted(static_cast<size_t>(exported.checkpoints), "checkpoint"));
  }
  return absl::StrJoin(parts, ", ");
}

Result Export(const Context& context, const ExportFlags& flags) {
  if (flags.output == "-" && context.terminal.out_is_terminal) {
    return absl::InvalidArgumentError(
        "a terminal cannot show a bundle; write it to a file with -O, or to a pipe");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string job, ResolveOne(*link, flags.job));
  std::string path = flags.output;
  if (path.empty()) path = absl::StrCat("job-", output::ShortName(job), ".trainyard");
  if (path != "-" && FileExists(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", path, "' is there already; choose another name with -O"));
  }
  TY_ASSIGN_OR_RETURN(const Exported exported, ExportJob(context, *link, job, flags.what, path));
  if (path != "-") context.out << path << "\n" << std::flush;
  context.Say(absl::StrCat("exported ", job, " with ", ContentText(exported), ", ",
                           FormatBytes(exported.bytes)));
  if (exported.checkpoints_left > 0 && flags.what.checkpoints == "none") {
    context.Say(absl::StrCat("it goes without ",
                             Counted(static_cast<size_t>(exported.checkpoints_left), "checkpoint"),
                             "; --checkpoint best, latest or all adds them"));
  }
  if (!output::IsFinal(exported.job.state())) {
    context.Say(absl::StrCat("warning: ", job, " is ", output::StateText(exported.job.state()),
                             ", so the file can be run, and no server imports it"));
  }
  return link::kOk;
}

}  // namespace

void AddExport(VerbTable& verbs) {
  verbs.Add<ExportFlags>(
      "export", "Write a job into one file, for another server or another day",
      "last -O resnet.trainyard --checkpoint best",
      [](client::Flags& flags, ExportFlags& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        flags.Value("-O,--output-file", options.output,
                    "The file (job-12.trainyard); - for standard output");
        flags
            .Value("--checkpoint", options.what.checkpoints,
                   "Checkpoints that go along: none, best, latest or all (none)")
            .OneOf({"none", "best", "latest", "all"});
        flags.Switch("--logs", options.what.has_logs, "The logs of the newest attempt go along");
      },
      Export);
}

}  // namespace trainyard::commands
