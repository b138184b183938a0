// suspend and resume take jobs out of the queue, and put them back.
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct SteerOptions {
  std::vector<std::string> jobs;
  std::string reason;
};

// Calls the method for each job. If a job refuses, the call is still made for the others; the first
// error ends the command.
template <typename Request, typename Method>
Result ForEach(const Context& context, const SteerOptions& options, Method method) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  std::vector<v1::Job> jobs;
  absl::Status first_error;
  for (const std::string& name : names) {
    Request request;
    request.set_name(name);
    if constexpr (!std::is_same_v<Request, v1::ResumeJobRequest>) {
      request.set_reason(options.reason);
    }
    auto job = link->Call(method, request);
    if (!job.ok()) {
      if (!first_error.ok()) context.err << "error: " << job.status().message() << "\n";
      first_error.Update(job.status());
      continue;
    }
    context.Say(absl::StrCat(job->name(), " is ", output::StateText(job->state())));
    jobs.push_back(*std::move(job));
  }
  std::vector<const google::protobuf::Message*> messages;
  std::vector<std::string> done;
  for (const v1::Job& job : jobs) {
    messages.push_back(&job);
    done.push_back(job.name());
  }
  PrintList(context, messages, done);
  TY_RETURN_IF_ERROR(first_error);
  return link::kOk;
}

Result Suspend(const Context& context, const SteerOptions& options) {
  return ForEach<v1::SuspendJobRequest>(context, options, &v1::JobService::Stub::SuspendJob);
}

Result Resume(const Context& context, const SteerOptions& options) {
  return ForEach<v1::ResumeJobRequest>(context, options, &v1::JobService::Stub::ResumeJob);
}

}  // namespace

void AddSteer(VerbTable& verbs) {
  verbs.Add<SteerOptions>(
      "resume", "Queue suspended and held jobs again", "last",
      [](client::Flags& flags, SteerOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
      },
      Resume);
  verbs.Add<SteerOptions>(
      "suspend", "Take jobs out of the queue, or stop them after a checkpoint", "last",
      [](client::Flags& flags, SteerOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
        flags.Value("--reason", options.reason, "For the history");
      },
      Suspend);
}

}  // namespace trainyard::commands
