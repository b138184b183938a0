#include <algorithm>
#include <iterator>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/commands.h"
#include "client/commands/diff.h"
#include "client/commands/explanation.h"
#include "client/commands/follow.h"
#include "client/commands/load_spec.h"
#include "client/commands/plan.h"
#include "client/commands/selector.h"
#include "client/commands/spec_changes.h"
#include "client/commands/submit_many.h"
#include "client/commands/submit_options.h"
#include "client/output/proto_text.h"
#include "client/output/text.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/backoff.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

using spec_loader::SpecFile;

// A server that restarts in the middle of a submission is back by then; the request id keeps it one
// job.
constexpr absl::Duration kRetryFor = absl::Seconds(10);
constexpr absl::string_view kNothing = "nothing was submitted";

std::string Indented(absl::string_view text) {
  return absl::StrCat(
      "  ", absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(text), {{"\n", "\n  "}}), "\n");
}

// Calls until it succeeds, fails for good, or the time is over.
template <typename Request, typename Method>
auto CallPersistently(const Context& context, link::ServerLink& link, Method method,
                      const Request& request) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(2), context.rng);
  const absl::Duration start = context.clock.Uptime();
  auto response = link.Call(method, request);
  while (response.status().code() == absl::StatusCode::kUnavailable &&
         context.clock.Uptime() - start < kRetryFor && !context.interrupt.WaitFor(backoff.Next())) {
    response = link.Call(method, request);
  }
  return response;
}

std::string RequestId(const Context& context) {
  return context.options.request_id.empty() ? MakeUuid(context.rng) : context.options.request_id;
}

void TellPlan(const Context& context, const v1::JobSpec& resolved) {
  const auto plan = MemoryPlan(context.surroundings.binary_dir, resolved);
  context.err << "memory plan:\n"
              << Indented(plan.ok() ? *plan
                                    : absl::StrCat("not available: ", plan.status().message()));
}

void TellQueue(const Context& context, const v1::Job& job, const std::string& command) {
  context.err << "queue:\n";
  if (job.queue_reasons().empty()) {
    context.err << "  it would start now\n";
  } else {
    context.err << Indented(ExplanationText(context, job.explanation(), command));
  }
}

Result DryRun(const Context& context, SpecFile& file, const std::vector<std::string>& changed) {
  v1::Job job;
  bool is_known = false;
  absl::Status server_status = absl::OkStatus();
  const auto link = Connect(context);
  if (link.ok()) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = file.spec;
    request.set_validate_only(true);
    TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, **link));
    const auto answer = (*link)->Call(&v1::JobService::Stub::CreateJob, request);
    if (answer.ok()) {
      job = *answer;
      is_known = true;
    } else if (!GetFieldViolations(answer.status()).empty()) {
      spec_loader::AddViolations(file, GetFieldViolations(answer.status()), changed);
      return TellMistakes(context, file, kNothing);
    } else {
      server_status = answer.status();
    }
  } else {
    server_status = link.status();
  }
  if (!is_known) {
    *job.mutable_spec() = file.spec;
    TY_ASSIGN_OR_RETURN(*job.mutable_resolved_spec(), spec::ResolveSpec(file.spec));
  }
  if (!PrintOne(context, job, job.resolved_spec().name())) {
    context.out << output::SpecYaml(job.resolved_spec()) << std::flush;
  }
  if (context.options.quiet) return link::kOk;
  TellPlan(context, job.resolved_spec());
  if (is_known) {
    TellQueue(context, job, absl::StrCat("trainyard submit ", context.options.files[0]));
  } else {
    context.err << "queue:\n  not available: " << server_status.message() << "\n";
  }
  return link::kOk;
}

// The new job: its name on stdout, or the job in the format that was asked for.
Result TellCreated(const Context& context, link::ServerLink& link, const v1::Job& job) {
  if (!PrintOne(context, job, job.name())) context.out << job.name() << "\n" << std::flush;
  if (context.options.follow && job.array_size() == 0) return FollowJob(context, link, job.name());
  const std::string id = output::ShortName(job.name());
  if (job.array_size() > 0) {
    context.Say(absl::StrCat("submitted '", job.spec().name(), "' as an array of ",
                             FormatCount(job.array_size()), ", up to jobs/",
                             ParseJobName(job.name())->value + job.array_size() - 1,
                             "; trainyard ls --array ", id, " lists it"));
    return link::kOk;
  }
  context.Say(absl::StrCat("submitted '", job.resolved_spec().name(), "'; trainyard watch ", id,
                           " follows it"));
  return link::kOk;
}

}  // namespace

Result Submit(const Context& context) {
  if (context.options.files.empty()) {
    return absl::InvalidArgumentError(
        "no spec is given; write `trainyard submit job.yaml`, or -f with a file of many");
  }
  std::vector<spec_loader::SpecText> texts;
  for (const std::string& path : context.options.files) {
    TY_ASSIGN_OR_RETURN(auto documents, spec_loader::ReadSpecTexts(path));
    std::move(documents.begin(), documents.end(), std::back_inserter(texts));
  }
  if (texts.size() > 1) return SubmitMany(context, texts);
  SpecFile file = spec_loader::ParseSpecText(texts.front());
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> changed, ApplyChanges(context.options, file));
  if (!file.mistakes.empty()) return TellMistakes(context, file, kNothing);
  if (context.options.dry_run) return DryRun(context, file, changed);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CreateJobRequest request;
  *request.mutable_spec() = file.spec;
  request.set_request_id(RequestId(context));
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, *link));
  if (!context.options.from.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(),
                        ResolveCheckpoint(*link, context.options.from));
  }
  const auto job = CallPersistently(context, *link, &v1::JobService::Stub::CreateJob, request);
  const auto violations = GetFieldViolations(job.status());
  if (!violations.empty()) {
    spec_loader::AddViolations(file, violations, changed);
    return TellMistakes(context, file, kNothing);
  }
  TY_RETURN_IF_ERROR(job.status());
  return TellCreated(context, *link, *job);
}

Result Clone(const Context& context) {
  TY_ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(context.options));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CloneJobRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(*link, context.options.selectors[0]));
  for (const Change& change : changes) {
    v1::SpecChange* added = request.add_changes();
    added->set_path(change.path);
    added->set_value_json(change.value);
  }
  if (!context.options.from.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(),
                        ResolveCheckpoint(*link, context.options.from));
  }
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, *link));
  request.set_validate_only(true);
  TY_ASSIGN_OR_RETURN(const v1::CloneJobResponse preview,
                      link->Call(&v1::JobService::Stub::CloneJob, request));
  const std::string differences =
      preview.differences().empty()
          ? absl::StrCat("equal to ", request.name(), "\n")
          : DifferencesText(preview.differences(), request.name(), "clone");
  if (context.options.dry_run) {
    if (PrintOne(context, preview, "")) return link::kOk;
    context.out << differences;
    TellQueue(context, preview.job(),
              absl::StrCat("trainyard clone ", output::ShortName(request.name())));
    return link::kOk;
  }
  if (!context.options.quiet) context.err << differences << std::flush;
  if (!context.options.yes && context.in_is_terminal) {
    context.err << "submit it? [Y/n] " << std::flush;
    std::string answer;
    context.interrupt.AllowExit(true);
    std::getline(context.in, answer);
    context.interrupt.AllowExit(false);
    if (!answer.empty() && answer[0] != 'y' && answer[0] != 'Y') {
      context.Say("nothing was submitted");
      return link::kOk;
    }
  }
  request.set_validate_only(false);
  request.set_request_id(RequestId(context));
  TY_ASSIGN_OR_RETURN(const v1::CloneJobResponse response,
                      CallPersistently(context, *link, &v1::JobService::Stub::CloneJob, request));
  return TellCreated(context, *link, response.job());
}

}  // namespace trainyard::commands
