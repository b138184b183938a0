// cancel stops one job, several, an array, or all jobs that wait.
#include <algorithm>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/rpc/status.h"

namespace trainyard::commands {
namespace {

struct CancelOptions {
  std::vector<std::string> jobs;
  std::string reason;
  std::string array;  // the name of one of its jobs
  bool all_queued = false;
};

// The server reports at most this many errors in one answer. A call with no more names than this
// leaves none of its errors out.
constexpr size_t kNamesOfACall = 100;

// Prints the errors one by one, and returns the first of them.
absl::Status Tell(const Context& context, const v1::CancelJobsResponse& response) {
  absl::Status first;
  for (const v1::JobError& error : response.errors()) {
    const absl::Status status = rpc::FromStatusProto(error.error());
    context.err << context.terminal.Style("1;31", "error:") << " " << status.message() << "\n";
    if (first.ok()) first = status;
  }
  const int64_t untold = response.failed() - response.errors_size();
  if (untold > 0) context.err << "... and " << FormatCount(untold) << " more\n";
  return first;
}

std::string Summary(int64_t cancelled, int64_t stopping, int64_t failed) {
  std::vector<std::string> parts;
  const auto add = [&parts](int64_t count, absl::string_view what) {
    if (count > 0) parts.push_back(absl::StrCat(FormatCount(count), " ", what));
  };
  add(cancelled, "cancelled");
  add(stopping, "stopping");
  add(failed, "could not be cancelled");
  return parts.empty() ? "there was nothing to cancel" : absl::StrJoin(parts, ", ");
}

Result CancelOne(const Context& context, link::ServerLink& link, const std::string& name,
                 const std::string& reason) {
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_reason(reason);
  TY_ASSIGN_OR_RETURN(const v1::Job job, link.Call(&v1::JobService::Stub::CancelJob, request));
  context.Say(absl::StrCat(job.name(), " is ", output::StateText(job.state())));
  PrintList(context, {&job}, {job.name()});
  return link::kOk;
}

Result CancelNamed(const Context& context, link::ServerLink& link,
                   const std::vector<std::string>& names, const std::string& reason) {
  v1::CancelJobsResponse all;
  for (size_t first = 0; first < names.size(); first += kNamesOfACall) {
    v1::CancelJobsRequest request;
    request.set_reason(reason);
    for (size_t i = first; i < std::min(names.size(), first + kNamesOfACall); ++i) {
      request.add_names(names[i]);
    }
    TY_ASSIGN_OR_RETURN(const v1::CancelJobsResponse response,
                        link.Call(&v1::JobService::Stub::CancelJobs, request));
    all.set_cancelled(all.cancelled() + response.cancelled());
    all.set_stopping(all.stopping() + response.stopping());
    all.set_failed(all.failed() + response.failed());
    all.mutable_errors()->MergeFrom(response.errors());
  }
  const absl::Status first_error = Tell(context, all);
  context.Say(Summary(all.cancelled(), all.stopping(), all.failed()));
  if (context.options.format == Format::kName) {
    std::set<std::string> failed;
    for (const v1::JobError& error : all.errors()) failed.insert(error.name());
    for (const std::string& name : names) {
      if (failed.count(name) == 0) context.out << name << "\n";
    }
  } else {
    PrintOne(context, all, "");
  }
  return first_error.ok() ? link::kOk : link::ExitCodeOf(first_error);
}

Result CancelMatching(const Context& context, link::ServerLink& link,
                      const v1::CancelJobsRequest& request) {
  // The timeout is long because cancelling a hundred thousand jobs takes a while.
  TY_ASSIGN_OR_RETURN(const v1::CancelJobsResponse response,
                      link.Call(&v1::JobService::Stub::CancelJobs, request, absl::Minutes(10)));
  const absl::Status first_error = Tell(context, response);
  context.Say(Summary(response.cancelled(), response.stopping(), response.failed()));
  if (context.options.format != Format::kName) PrintOne(context, response, "");
  return first_error.ok() ? link::kOk : link::ExitCodeOf(first_error);
}

Result Cancel(const Context& context, const CancelOptions& options) {
  const int ways = (options.jobs.empty() ? 0 : 1) + (options.array.empty() ? 0 : 1) +
                   (options.all_queued ? 1 : 0);
  if (ways != 1) {
    return absl::InvalidArgumentError(
        "say which: `trainyard cancel 12` or 1-10,15, --array 12, or --all-queued");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CancelJobsRequest request;
  request.set_reason(options.reason);
  if (!options.array.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_array(), ResolveOne(*link, options.array));
    return CancelMatching(context, *link, request);
  }
  if (options.all_queued) {
    request.set_user("");
    request.add_states(v1::JOB_STATE_QUEUED);
    return CancelMatching(context, *link, request);
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  return names.size() == 1 ? CancelOne(context, *link, names.front(), options.reason)
                           : CancelNamed(context, *link, names, options.reason);
}

}  // namespace

void AddCancel(VerbTable& verbs) {
  verbs.Add<CancelOptions>(
      "cancel", "Stop jobs for good", "last\n  trainyard cancel --array 12",
      [](client::Flags& flags, CancelOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp);
        flags.Value("--reason", options.reason, "For the history");
        flags.Value("--array", options.array, "All jobs of the array that this job is of");
        flags.Switch("--all-queued", options.all_queued, "All of your jobs that wait");
      },
      Cancel);
}

}  // namespace trainyard::commands
