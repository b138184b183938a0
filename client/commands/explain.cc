// explain says why a job waits, or why a spec would wait if it were submitted now.
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/explanation.h"
#include "client/commands/load_spec.h"
#include "client/commands/selector.h"
#include "client/commands/submit_options.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct ExplainOptions {
  std::string job;
  std::string file;
  SubmitFlags flags;
};

// Returns the state of a job that does not wait, and what the user can do about it.
std::string WhyNoWait(const v1::Job& job) {
  const std::string id = output::ShortName(job.name());
  const std::string state = output::StateText(job.state());
  if (output::IsHeld(job)) {
    return absl::StrCat("it is held because of a failure: ", job.failure().message(),
                        "\n  trainyard resume ", id, "    queues it again\n  trainyard cancel ", id,
                        "    gives it up");
  }
  if (job.state() == v1::JOB_STATE_SUSPENDED) {
    return absl::StrCat("it is suspended; `trainyard resume ", id, "` queues it again");
  }
  if (output::IsFinal(job.state())) {
    return absl::StrCat("it has ended as ", state, "; `trainyard show ", id, "` says more");
  }
  return absl::StrCat("it is ", state, " and does not wait");
}

// Returns "it is STARTING on lab-1, which has not reported for 20m", if the job waits for workers.
std::string SilentText(const Context& context, link::ServerLink& link, const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_STARTING && job.state() != v1::JOB_STATE_STOPPING) return "";
  const auto workers = link.Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest());
  if (!workers.ok()) return "";
  const absl::Time now = context.clock.Now();
  for (const v1::RankPlacement& rank : job.placement()) {
    for (const v1::Worker& worker : workers->workers()) {
      const bool is_away =
          worker.state() != v1::WORKER_STATE_ACTIVE || output::IsSilent(worker, now);
      if (worker.name() != rank.worker() || !is_away) continue;
      return absl::StrCat("it is ", output::StateText(job.state()), " on ",
                          output::ShortName(worker.name()), ", which has not reported for ",
                          output::AgeText(now - output::ToTime(worker.last_seen_time())),
                          "; it goes on when the worker comes back, and `trainyard workers lost ",
                          output::ShortName(worker.name()), "` lets it start elsewhere");
    }
  }
  return "";
}

Result ExplainJob(const Context& context, link::ServerLink& link, const std::string& selector) {
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(link, selector));
  v1::GetJobRequest get;
  get.set_name(name);
  TY_ASSIGN_OR_RETURN(const v1::Job job, link.Call(&v1::JobService::Stub::GetJob, get));
  v1::ExplainJobRequest request;
  request.set_name(name);
  TY_ASSIGN_OR_RETURN(const v1::Explanation explanation,
                      link.Call(&v1::JobService::Stub::ExplainJob, request));
  if (PrintOne(context, explanation, name)) return link::kOk;
  const bool waits = job.state() == v1::JOB_STATE_QUEUED;
  std::string where;
  if (waits && explanation.position() > 0) {
    where = absl::StrCat(", ", Ordinal(explanation.position()), " in the queue");
  }
  context.out << name << "  " << job.resolved_spec().name() << "  "
              << context.terminal.Style(output::StateStyle(job.state()),
                                        output::StateText(job.state()))
              << where << "\n";
  if (waits && explanation.reasons().empty()) {
    context.out
        << "the next scheduling pass places it or finds out why not; ask again in a moment\n";
  } else if (waits) {
    context.out << ExplanationText(
        context, explanation, absl::StrCat("trainyard clone ", output::ShortName(name), " --yes"));
  } else {
    const std::string silent = SilentText(context, link, job);
    context.out << (silent.empty() ? WhyNoWait(job) : silent) << "\n";
  }
  return link::kOk;
}

Result ExplainSpec(const Context& context, link::ServerLink& link, const std::string& path,
                   const SubmitFlags& flags) {
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, path));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> changed, ApplyChanges(flags.spec, file));
  if (!file.mistakes.empty()) return TellMistakes(context, file, "nothing was explained");
  v1::ExplainJobRequest request;
  *request.mutable_spec() = file.spec;
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, link, flags));
  const auto explanation = link.Call(&v1::JobService::Stub::ExplainJob, request);
  if (!GetFieldViolations(explanation.status()).empty()) {
    spec_loader::AddViolations(file, GetFieldViolations(explanation.status()), changed);
    return TellMistakes(context, file, "nothing was explained");
  }
  TY_RETURN_IF_ERROR(explanation.status());
  if (PrintOne(context, *explanation, file.spec.name())) return link::kOk;
  context.out << file.spec.name() << "  not submitted yet\n"
              << ExplanationText(context, *explanation, absl::StrCat("trainyard submit ", path));
  return link::kOk;
}

Result Explain(const Context& context, const ExplainOptions& options) {
  if (options.job.empty() == options.file.empty()) {
    return absl::InvalidArgumentError(
        "explain a job, `trainyard explain 12`, or a spec, `trainyard explain -f job.yaml`");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  return options.file.empty() ? ExplainJob(context, *link, options.job)
                              : ExplainSpec(context, *link, options.file, options.flags);
}

}  // namespace

void AddExplain(VerbTable& verbs) {
  verbs.Add<ExplainOptions>(
      "explain", "Tell why a job waits, what would start it now, and when it starts",
      "last\n  trainyard explain -f jobs/convnet-glyphs.yaml --devices 4",
      [](client::Flags& flags, ExplainOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp);
        flags.Value("-f,--file", options.file, "A spec that is not submitted yet");
        DeclareSubmitFlags(flags, options.flags);
      },
      Explain);
}

}  // namespace trainyard::commands
