// diff shows how two specs differ. The server compares them; the client only draws the table.
#include "client/commands/diff.h"

#include <ostream>

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
  return link::kOk;
}

}  // namespace

void AddDiff(VerbTable& verbs) {
  verbs.Add<DiffOptions>(
      "diff", "Show the differences of two jobs' specs", "@~1 last",
      [](client::Flags& flags, DiffOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required().Count(2, 2);
      },
      Diff);
}

}  // namespace trainyard::commands
