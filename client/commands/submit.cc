// submit, run and clone make jobs. Each request carries an id, so that a call that is repeated
// after a lost connection makes no second job.
#include <algorithm>
#include <iterator>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/diff.h"
#include "client/commands/explanation.h"
#include "client/commands/follow.h"
#include "client/commands/load_spec.h"
#include "client/commands/plan.h"
#include "client/commands/selector.h"
#include "client/commands/spec_changes.h"
#include "client/commands/submit_many.h"
#include "client/commands/submit_options.h"
#include "client/commands/verbs.h"
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

// If the server restarts in the middle of a submission, it is back within this time.
constexpr absl::Duration kRetryFor = absl::Seconds(10);
constexpr absl::string_view kNothing = "nothing was submitted";

struct SubmitOptions {
  std::vector<std::string> files;
  std::vector<std::string> more_files;  // the files of -f, which may stand before FILE and after it
  SubmitFlags flags;
  bool follow = false;
};

struct CloneOptions {
  std::string job;
  SubmitFlags flags;
  bool follow = false;
  bool yes = false;
};

std::string Indented(absl::string_view text) {
  return absl::StrCat(
      "  ", absl::StrReplaceAll(absl::StripTrailingAsciiWhitespace(text), {{"\n", "\n  "}}), "\n");
}

// Repeats the call until it succeeds, fails for good, or the time is over.
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

std::string RequestId(const Context& context, const SubmitFlags& flags) {
  return flags.request_id.empty() ? MakeUuid(context.rng) : flags.request_id;
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

Result DryRun(const Context& context, const SubmitFlags& flags, SpecFile& file,
              const std::vector<std::string>& changed) {
  v1::Job job;
  bool is_known = false;
  absl::Status server_status = absl::OkStatus();
  const auto link = Connect(context);
  if (link.ok()) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = file.spec;
    request.set_validate_only(true);
    TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, **link, flags));
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
    TellQueue(context, job, absl::StrCat("trainyard submit ", file.name));
  } else {
    context.err << "queue:\n  not available: " << server_status.message() << "\n";
  }
  return link::kOk;
}

// Prints the name of the new job, or the job itself in the format that the user chose.
Result TellCreated(const Context& context, link::ServerLink& link, const v1::Job& job,
                   bool follow) {
  if (!PrintOne(context, job, job.name())) context.out << job.name() << "\n" << std::flush;
  if (follow && job.array_size() == 0) return FollowJob(context, link, job.name());
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

// Returns the files that were given with -f and without it. A file that was given both ways is
// listed once.
std::vector<std::string> FilesOf(const SubmitOptions& options) {
  std::vector<std::string> files = options.files;
  for (const std::string& file : options.more_files) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
  return files;
}

Result Submit(const Context& context, const SubmitOptions& options) {
  const SubmitFlags& flags = options.flags;
  const std::vector<std::string> files = FilesOf(options);
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "no spec is given; write `trainyard submit job.yaml`, or -f with a file of many");
  }
  std::vector<spec_loader::SpecText> texts;
  for (const std::string& path : files) {
    TY_ASSIGN_OR_RETURN(auto documents, ReadSpecs(context, path));
    std::move(documents.begin(), documents.end(), std::back_inserter(texts));
  }
  if (texts.size() > 1 && options.follow) {
    return absl::InvalidArgumentError(
        absl::StrCat("--follow follows one job, and these are ", texts.size(),
                     " specs; submit them without it, then `trainyard watch`"));
  }
  if (texts.size() > 1) return SubmitMany(context, flags, texts);
  SpecFile file = spec_loader::ParseSpecText(texts.front());
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> changed, ApplyChanges(flags.spec, file));
  if (!file.mistakes.empty()) return TellMistakes(context, file, kNothing);
  if (flags.dry_run) return DryRun(context, flags, file, changed);
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CreateJobRequest request;
  *request.mutable_spec() = file.spec;
  request.set_request_id(RequestId(context, flags));
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, *link, flags));
  if (!flags.from.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(), ResolveCheckpoint(*link, flags.from));
  }
  const auto job = CallPersistently(context, *link, &v1::JobService::Stub::CreateJob, request);
  const auto violations = GetFieldViolations(job.status());
  if (!violations.empty()) {
    spec_loader::AddViolations(file, violations, changed);
    return TellMistakes(context, file, kNothing);
  }
  TY_RETURN_IF_ERROR(job.status());
  return TellCreated(context, *link, *job, options.follow);
}

Result Clone(const Context& context, const CloneOptions& options) {
  const SubmitFlags& flags = options.flags;
  TY_ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(flags.spec));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CloneJobRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(*link, options.job));
  for (const Change& change : changes) {
    v1::SpecChange* added = request.add_changes();
    added->set_path(change.path);
    added->set_value_json(change.value);
  }
  if (!flags.from.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(), ResolveCheckpoint(*link, flags.from));
  }
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, *link, flags));
  request.set_validate_only(true);
  TY_ASSIGN_OR_RETURN(const v1::CloneJobResponse preview,
                      link->Call(&v1::JobService::Stub::CloneJob, request));
  const std::string differences =
      preview.differences().empty()
          ? absl::StrCat("equal to ", request.name(), "\n")
          : DifferencesText(preview.differences(), request.name(), "clone");
  if (flags.dry_run) {
    if (PrintOne(context, preview, "")) return link::kOk;
    context.out << differences;
    TellQueue(context, preview.job(),
              absl::StrCat("trainyard clone ", output::ShortName(request.name())));
    return link::kOk;
  }
  if (!context.options.quiet) context.err << differences << std::flush;
  if (!options.yes && context.in_is_terminal &&
      !Confirm(context, "submit it?", /*yes_by_default=*/true)) {
    context.Say("nothing was submitted");
    return link::kOk;
  }
  request.set_validate_only(false);
  request.set_request_id(RequestId(context, flags));
  TY_ASSIGN_OR_RETURN(const v1::CloneJobResponse response,
                      CallPersistently(context, *link, &v1::JobService::Stub::CloneJob, request));
  return TellCreated(context, *link, response.job(), options.follow);
}

}  // namespace

void AddSubmit(VerbTable& verbs) {
  verbs.Add<SubmitOptions>(
      "submit", "Submit job specs, one or thousands",
      "jobs/convnet-glyphs.yaml --set train.epochs=5 --follow\n"
      "  trainyard submit -f sweep.yaml       every document of the file\n"
      "  trainyard submit jobs/mlp-glyphs.yaml --array 100%8",
      [](client::Flags& flags, SubmitOptions& options) {
        flags.Words("FILE", options.files,
                    "Spec in YAML or JSON, or several with --- between them; - for standard "
                    "input");
        flags.Repeated("-f,--file", options.more_files, "The same; may be repeated");
        DeclareSubmitFlags(flags, options.flags);
        flags.Switch("--follow", options.follow, "Follow it to its end");
      },
      Submit);
  verbs.Add<SubmitOptions>(
      "run", "Submit a job spec and follow it (submit --follow)",
      "jobs/convnet-glyphs.yaml --devices 2",
      [](client::Flags& flags, SubmitOptions& options) {
        options.follow = true;
        flags.Words("FILE", options.files, "Spec in YAML or JSON; - for standard input")
            .Required()
            .Count(1, 1);
        DeclareSubmitFlags(flags, options.flags);
      },
      Submit);
  verbs.Add<CloneOptions>(
      "clone", "Run a job again, with changes", "last --set optimizer.sgd.lr=0.02 --follow",
      [](client::Flags& flags, CloneOptions& options) {
        flags.Word("JOB", options.job, kSelectorHelp).Required();
        DeclareSubmitFlags(flags, options.flags);
        flags.Switch("--follow", options.follow, "Follow it to its end");
        flags.Switch("-y,--yes", options.yes, "Do not ask");
      },
      Clone);
}

}  // namespace trainyard::commands
