// wait blocks until jobs have ended, so that scripts can continue after them.
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct WaitOptions {
  std::vector<std::string> jobs;
  std::string timeout;
};

Result Wait(const Context& context, const WaitOptions& options) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (!options.timeout.empty()) {
    TY_ASSIGN_OR_RETURN(timeout, ParseDuration(options.timeout));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  const absl::Duration start = context.clock.Uptime();
  std::map<std::string, v1::Job> ended;
  link::Follower follower(*link, context.clock, context.rng, {.names = names, .metrics_of = ""});
  while (ended.size() < names.size()) {
    if (context.interrupt.triggered()) return link::kInterrupted;
    if (context.clock.Uptime() - start >= timeout) {
      context.Say(absl::StrCat("after ", options.timeout, ", ",
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

}  // namespace

void AddWait(VerbTable& verbs) {
  verbs.Add<WaitOptions>(
      "wait", "Wait until jobs have ended", "last --timeout 10min",
      [](client::Flags& flags, WaitOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
        flags.Value("--timeout", options.timeout, "Give up after this time: 90s, 10min, 2h");
      },
      Wait);
}

}  // namespace trainyard::commands
