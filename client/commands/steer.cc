// suspend, resume and wait: one answer for several jobs.
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/selector.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// One call a job: a job that refuses does not keep the others from theirs. The first error counts.
template <typename Request, typename Method>
Result ForEach(const Context& context, Method method) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ResolveSelectors(*link, context.options.selectors));
  std::vector<v1::Job> jobs;
  absl::Status first_error;
  for (const std::string& name : names) {
    Request request;
    request.set_name(name);
    if constexpr (!std::is_same_v<Request, v1::ResumeJobRequest>) {
      request.set_reason(context.options.reason);
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

}  // namespace

Result Suspend(const Context& context) {
  return ForEach<v1::SuspendJobRequest>(context, &v1::JobService::Stub::SuspendJob);
}

Result Resume(const Context& context) {
  return ForEach<v1::ResumeJobRequest>(context, &v1::JobService::Stub::ResumeJob);
}

Result Wait(const Context& context) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (!context.options.timeout.empty()) {
    TY_ASSIGN_OR_RETURN(timeout, ParseDuration(context.options.timeout));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ResolveSelectors(*link, context.options.selectors));
  const absl::Duration start = context.clock.Uptime();
  std::map<std::string, v1::Job> ended;
  link::Follower follower(*link, context.clock, context.rng, {.names = names, .metrics_of = ""});
  while (ended.size() < names.size()) {
    if (context.interrupt.triggered()) return link::kInterrupted;
    if (context.clock.Uptime() - start >= timeout) {
      context.Say(absl::StrCat("after ", context.options.timeout, ", ",
                               Counted(names.size() - ended.size(), "job"), " had not ended"));
      return link::kTimedOut;
    }
    auto update = follower.Next(absl::Milliseconds(100));
    if (!update.has_value()) continue;
    if (const auto* end = std::get_if<link::End>(&*update)) return end->status;
    const auto* job = std::get_if<v1::Job>(&*update);
    if (job == nullptr || !output::HasEnded(*job)) continue;
    if (!ended.emplace(job->name(), *job).second) continue;
    const std::string held =
        output::IsHeld(*job)
            ? absl::StrCat(" (held: ", job->failure().message(), "); `trainyard resume ",
                           output::ShortName(job->name()), "` queues it again")
            : "";
    context.Say(absl::StrCat(job->name(), " is ", output::StateText(job->state()), held));
  }
  bool all_succeeded = true;
  std::vector<const google::protobuf::Message*> messages;
  for (const std::string& name : names) {
    all_succeeded &= ended[name].state() == v1::JOB_STATE_SUCCEEDED;
    messages.push_back(&ended[name]);
  }
  PrintList(context, messages, names);
  return all_succeeded ? link::kOk : link::kJobEndedBadly;
}

}  // namespace trainyard::commands
