// rm deletes jobs that have ended, or only their checkpoints, logs or metrics. It first asks the
// server what that would free, so that the user knows before anything is deleted.
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct RemoveOptions {
  std::vector<std::string> jobs;
  // If any of these is true, only these parts are deleted and the jobs stay.
  bool checkpoints = false;
  bool logs = false;
  bool metrics = false;
  bool dry_run = false;
  bool yes = false;
};

// Returns what is deleted, in words, or an empty text for the jobs themselves.
std::string PartsText(const RemoveOptions& options) {
  std::vector<std::string> parts;
  if (options.checkpoints) parts.emplace_back("checkpoints");
  if (options.logs) parts.emplace_back("logs");
  if (options.metrics) parts.emplace_back("metrics");
  if (parts.empty()) return "";
  const std::string last = std::move(parts.back());
  parts.pop_back();
  return parts.empty() ? last : absl::StrCat(absl::StrJoin(parts, ", "), " and ", last);
}

absl::StatusOr<v1::DeleteJobResponse> Delete(link::ServerLink& link, const std::string& name,
                                             const RemoveOptions& options, bool validate_only) {
  if (PartsText(options).empty()) {
    v1::DeleteJobRequest request;
    request.set_name(name);
    request.set_validate_only(validate_only);
    return link.Call(&v1::JobService::Stub::DeleteJob, request);
  }
  v1::DeleteJobDataRequest request;
  request.set_name(name);
  request.set_validate_only(validate_only);
  if (options.checkpoints) request.add_parts(v1::JOB_PART_CHECKPOINTS);
  if (options.logs) request.add_parts(v1::JOB_PART_LOGS);
  if (options.metrics) request.add_parts(v1::JOB_PART_METRICS);
  return link.Call(&v1::JobService::Stub::DeleteJobData, request);
}

// The jobs, and what is deleted of each.
struct Deletions {
  std::vector<std::string> names;
  std::vector<v1::DeleteJobResponse> freed;
  absl::Status first_error;
};

// If one job cannot be deleted, the others still are. The first error ends the command; the others
// are printed here.
Deletions DeleteEach(const Context& context, link::ServerLink& link,
                     const std::vector<std::string>& names, const RemoveOptions& options,
                     bool validate_only) {
  Deletions deletions;
  for (const std::string& name : names) {
    auto freed = Delete(link, name, options, validate_only);
    if (!freed.ok()) {
      if (!deletions.first_error.ok()) context.err << "error: " << freed.status().message() << "\n";
      deletions.first_error.Update(freed.status());
      continue;
    }
    deletions.names.push_back(name);
    deletions.freed.push_back(*std::move(freed));
  }
  return deletions;
}

int64_t FreedBytes(const v1::DeleteJobResponse& freed) {
  return freed.checkpoint_bytes() + freed.log_bytes() + freed.metric_bytes();
}

std::string KeptText(const v1::DeleteJobResponse& freed) {
  std::vector<std::string> parts;
  for (const std::string& checkpoint : freed.kept_checkpoints()) {
    parts.push_back(absl::StrCat("checkpoint ", checkpoint.substr(checkpoint.rfind('/') + 1)));
  }
  if (freed.kept_spec()) parts.push_back("spec");
  return absl::StrJoin(parts, ", ");
}

std::string DeletionsTable(const Deletions& deletions) {
  using output::Table;
  Table table({{"JOB", Table::Align::kRight},
               {"CHECKPOINTS", Table::Align::kRight},
               {"SIZE", Table::Align::kRight},
               {"LOGS", Table::Align::kRight},
               {"METRIC POINTS", Table::Align::kRight},
               {"EVENTS", Table::Align::kRight},
               {"KEPT FOR OTHER JOBS"}});
  for (size_t i = 0; i < deletions.names.size(); ++i) {
    const v1::DeleteJobResponse& freed = deletions.freed[i];
    table.AddRow({output::ShortName(deletions.names[i]), FormatCount(freed.checkpoints()),
                  FormatBytes(freed.checkpoint_bytes()), FormatBytes(freed.log_bytes()),
                  FormatCount(freed.metric_points()), FormatCount(freed.events()),
                  KeptText(freed)});
  }
  return table.Render();
}

Result DryRun(const Context& context, link::ServerLink& link, const std::vector<std::string>& names,
              const RemoveOptions& options) {
  const Deletions preview = DeleteEach(context, link, names, options, /*validate_only=*/true);
  if (!PrintMessages(context, preview.freed, preview.names) && !preview.names.empty()) {
    context.out << DeletionsTable(preview);
  }
  TY_RETURN_IF_ERROR(preview.first_error);
  return link::kOk;
}

Result Remove(const Context& context, const RemoveOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  if (options.dry_run) return DryRun(context, *link, names, options);
  const std::string parts = PartsText(options);
  const std::string of_jobs = parts.empty() ? "" : absl::StrCat("the ", parts, " of ");
  absl::Status first_error;
  if (!options.yes && context.in_is_terminal) {
    const Deletions preview = DeleteEach(context, *link, names, options, /*validate_only=*/true);
    if (preview.names.empty()) return preview.first_error;
    context.err << DeletionsTable(preview);
    const std::string question =
        absl::StrCat("delete ", of_jobs, Counted(preview.names.size(), "job"), " for good?");
    if (!Confirm(context, question, /*yes_by_default=*/false)) {
      context.Say("nothing was deleted");
      return link::kOk;
    }
    names = preview.names;
    first_error = preview.first_error;
  }
  const Deletions done = DeleteEach(context, *link, names, options, /*validate_only=*/false);
  for (size_t i = 0; i < done.names.size(); ++i) {
    const std::string kept = KeptText(done.freed[i]);
    context.Say(absl::StrCat(of_jobs, done.names[i],
                             parts.empty() ? " is deleted, " : " are deleted, ",
                             FormatBytes(FreedBytes(done.freed[i])), " freed",
                             kept.empty() ? "" : absl::StrCat("; other jobs need its ", kept)));
  }
  PrintMessages(context, done.freed, done.names);
  first_error.Update(done.first_error);
  TY_RETURN_IF_ERROR(first_error);
  return link::kOk;
}

}  // namespace

void AddRemove(VerbTable& verbs) {
  verbs.Add<RemoveOptions>(
      "rm", "Delete jobs that have ended, with their logs, metrics and checkpoints",
      "1-10,15 --dry-run\n  trainyard rm 12 --checkpoints --logs",
      [](client::Flags& flags, RemoveOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
        flags.Switch("--checkpoints", options.checkpoints,
                     "Delete the checkpoints only; the jobs stay");
        flags.Switch("--logs", options.logs, "Delete the logs only; may go with --checkpoints");
        flags.Switch("--metrics", options.metrics,
                     "Delete the curves only; the last values stay with the jobs");
        flags.Switch("--dry-run", options.dry_run, "Show what would be freed; delete nothing");
        flags.Switch("-y,--yes", options.yes, "Do not ask");
      },
      Remove);
}

}  // namespace trainyard::commands
