// diff shows how two jobs differ. The server compares their specs, and the client their code.
#include "client/commands/diff.h"

#include <algorithm>
#include <ostream>

#include "client/commands/code_diff.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/table.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {

std::string DifferencesText(
    const google::protobuf::RepeatedPtrField<v1::SpecDifference>& differences,
    const std::string& left_title, const std::string& right_title) {
  output::Table table({{"FIELD"}, {left_title}, {right_title}});
  for (const v1::SpecDifference& difference : differences) {
    table.AddRow({difference.path(), difference.left_json(), difference.right_json()});
  }
  return table.Render();
}

namespace {

struct DiffOptions {
  std::vector<std::string> jobs;  // exactly two
};

// Prints what the jobs found beside their specs: the data, and the environments of programs. A job
// that was deleted tells nothing.
absl::Status PrintSurroundings(const Context& context, link::ServerLink& link,
                               const v1::DiffJobsRequest& pair) {
  v1::GetJobRequest request;
  request.set_name(pair.left());
  const auto left = link.Call(&v1::JobService::Stub::GetJob, request);
  request.set_name(pair.right());
  const auto right = link.Call(&v1::JobService::Stub::GetJob, request);
  if (!left.ok() || !right.ok()) return absl::OkStatus();
  const std::string& left_data = left->provenance().data_digest();
  const std::string& right_data = right->provenance().data_digest();
  if (!left_data.empty() && !right_data.empty() && left_data != right_data) {
    output::Table table({{"DATA"}, {pair.left()}, {pair.right()}});
    table.AddRow({"digest", left_data, right_data});
    context.out << "\n" << table.Render();
  }
  if (!left->resolved_spec().has_program() || !right->resolved_spec().has_program()) {
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(const auto before, EnvironmentOf(link, pair.left()));
  TY_ASSIGN_OR_RETURN(const auto after, EnvironmentOf(link, pair.right()));
  const std::string differences = EnvironmentDifferences(before, after, pair.left(), pair.right());
  if (!differences.empty()) context.out << "\n" << differences;
  return absl::OkStatus();
}

Result Diff(const Context& context, const DiffOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::DiffJobsRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_left(), ResolveOne(*link, options.jobs[0]));
  TY_ASSIGN_OR_RETURN(*request.mutable_right(), ResolveOne(*link, options.jobs[1]));
  TY_ASSIGN_OR_RETURN(const v1::DiffJobsResponse response,
                      link->Call(&v1::JobService::Stub::DiffJobs, request));
  std::vector<const google::protobuf::Message*> messages;
  std::vector<std::string> names;
  for (const v1::SpecDifference& difference : response.differences()) {
    messages.push_back(&difference);
    names.push_back(difference.path());
  }
  if (PrintList(context, messages, names)) return link::kOk;
  if (response.differences().empty()) {
    context.Say("the specs are equal");
  } else {
    context.out << DifferencesText(response.differences(), request.left(), request.right());
  }
  TY_RETURN_IF_ERROR(PrintSurroundings(context, *link, request));
  const auto& differences = response.differences();
  const bool has_other_code =
      std::any_of(differences.begin(), differences.end(), [](const v1::SpecDifference& one) {
        return one.path() == "program.code" && !one.left_json().empty() &&
               !one.right_json().empty();
      });
  if (has_other_code) {
    TY_RETURN_IF_ERROR(PrintCodeDiff(context, *link, request.left(), request.right()));
  }
  return link::kOk;
}

}  // namespace

void AddDiff(VerbTable& verbs) {
  verbs.Add<DiffOptions>(
      "diff", "Show the differences of two jobs: specs, code, environments", "@~1 last",
      [](client::Flags& flags, DiffOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required().Count(2, 2);
      },
      Diff);
}

}  // namespace trainyard::commands
