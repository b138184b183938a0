// submit, run and clone make jobs. Each request carries an id, so that a call that is repeated
// after a lost connection makes no second job.
#include <algorithm>
#include <iterator>
#include <optional>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/bucket_start.h"
#include "client/commands/call_persistently.h"
#include "client/commands/code_sender.h"
#include "client/commands/diff.h"
#include "client/commands/explanation.h"
#include "client/commands/follow.h"
#include "client/commands/load_spec.h"
#include "client/commands/memory_need.h"
#include "client/commands/program_command.h"
#include "client/commands/program_follow.h"
#include "client/commands/selector.h"
#include "client/commands/spec_changes.h"
#include "client/commands/submit_many.h"
#include "client/commands/submit_options.h"
#include "client/commands/trainer_plan.h"
#include "client/commands/verbs.h"
#include "client/output/proto_text.h"
#include "client/output/text.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

using spec_loader::SpecFile;

constexpr absl::string_view kNothing = "nothing was submitted";

struct SubmitOptions {
  std::vector<std::string> files;
  std::vector<std::string> more_files;  // the files of -f, which may stand before FILE and after it
  std::vector<std::string> command;     // what stands after --
  std::vector<std::string> variables;   // of --env
  SubmitFlags flags;
  bool follow = false;
  std::string verb = "submit";
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

std::string RequestId(const Context& context, const SubmitFlags& flags) {
  return flags.request_id.empty() ? MakeUuid(context.rng) : flags.request_id;
}

void AddMemoryNeed(const Context& context, const v1::JobSpec& spec, v1::SubmitOptions& options) {
  const auto need = MemoryPlanner(context.surroundings.binary_dir).NeedOf(spec);
  if (need.has_value()) *options.mutable_memory_need() = *need;
}

// Plans for the devices of the pool, or for this machine if they are not known.
void TellPlan(const Context& context, const v1::JobSpec& resolved,
              const std::optional<PoolDevices>& devices) {
  const auto plan = MemoryPlan(context.surroundings.binary_dir, resolved,
                               devices.has_value() ? devices->memory_bytes : 0);
  context.err << "memory plan"
              << (devices.has_value() ? absl::StrCat(", for ", devices->Text(), " of the pool")
                                      : "")
              << ":\n"
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

void TellWarnings(const Context& context, const v1::Job& job) {
  for (const std::string& warning : job.warnings()) {
    context.err << context.terminal.Style("1;33", "warning:") << " " << warning << "\n";
  }
}

// Adds what the flags say besides the spec, and the memory that the job needs.
absl::Status TakeFlags(const Context& context, link::ServerLink& link, const SubmitFlags& flags,
                       const std::string& saved_spec, v1::CreateJobRequest& request) {
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, link, flags));
  request.mutable_options()->set_saved_spec(saved_spec);
  AddMemoryNeed(context, request.spec(), *request.mutable_options());
  return TakeStart(context, link, flags.from, request);
}

// Asks the server what it would do with the request. Returns nothing if no server answers, since
// the spec alone can be checked without one.
absl::StatusOr<std::optional<v1::Job>> Validate(const Context& context, const SubmitFlags& flags,
                                                const SpecFile& file, std::string& why_not,
                                                std::optional<PoolDevices>& devices) {
  const auto link = Connect(context);
  if (!link.ok()) {
    why_not = std::string(link.status().message());
    return std::nullopt;
  }
  v1::CreateJobRequest request;
  *request.mutable_spec() = file.spec;
  request.set_validate_only(true);
  TY_RETURN_IF_ERROR(TakeFlags(context, **link, flags, file.saved_spec, request));
  const auto answer = (*link)->Call(&v1::JobService::Stub::CreateJob, request);
  if (answer.ok()) {
    TY_ASSIGN_OR_RETURN(devices, LargestDevices(**link, answer->resolved_spec().devices()));
    return *answer;
  }
  if (!absl::IsUnavailable(answer.status())) return answer.status();
  why_not = std::string(answer.status().message());
  return std::nullopt;
}

Result DryRun(const Context& context, const SubmitFlags& flags, SpecFile& file,
              const std::vector<std::string>& changed) {
  std::string why_not;
  std::optional<PoolDevices> devices;
  auto validated = Validate(context, flags, file, why_not, devices);
  if (const auto violations = GetFieldViolations(validated.status()); !violations.empty()) {
    spec_loader::AddViolations(file, violations, changed);
    return TellMistakes(context, file, kNothing);
  }
  TY_RETURN_IF_ERROR(validated.status());
  v1::Job job;
  if (validated->has_value()) {
    job = **std::move(validated);
  } else {
    *job.mutable_spec() = file.spec;
    TY_ASSIGN_OR_RETURN(*job.mutable_resolved_spec(), spec::ResolveSpec(file.spec));
  }
  if (!PrintOne(context, job, job.resolved_spec().name())) {
    context.out << output::SpecYaml(job.resolved_spec()) << std::flush;
  }
  if (context.options.quiet) return link::kOk;
  TellWarnings(context, job);
  if (!job.resolved_spec().has_program()) TellPlan(context, job.resolved_spec(), devices);
  if (why_not.empty()) {
    TellQueue(context, job, absl::StrCat("trainyard submit ", file.name));
  } else {
    context.err << "queue:\n  not available: " << why_not << "\n";
  }
  return link::kOk;
}

// Prints the name of the new job, or the job itself in the format that the user chose.
Result TellCreated(const Context& context, link::ServerLink& link, const v1::Job& job,
                   bool follow) {
  TellWarnings(context, job);
  if (follow && job.array_size() == 0 && job.resolved_spec().has_program()) {
    // The program's own output is all that goes to stdout.
    return FollowProgram(context, link, job);
  }
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

// Returns the specs of the files, or that of the command.
absl::StatusOr<std::vector<spec_loader::SpecText>> TextsOf(const Context& context,
                                                           const SubmitOptions& options) {
  const std::vector<std::string> files = FilesOf(options);
  std::vector<spec_loader::SpecText> texts;
  if (!options.command.empty()) {
    if (!files.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there is a spec, ", files.front(), ", and a command after '--'; give one of them"));
    }
    TY_ASSIGN_OR_RETURN(auto text, SpecOfCommand(context, options.command, options.variables,
                                                 options.flags.spec.code));
    texts.push_back(std::move(text));
    return texts;
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "no spec is given; write `trainyard submit job.yaml`, -f with a file of many, or a "
        "command after '--', as in `trainyard submit -- python3 train.py`");
  }
  if (!options.variables.empty()) {
    return absl::InvalidArgumentError(
        "--env belongs to a command after '--'; for a spec, write --set program.env.NAME=VALUE");
  }
  if (const std::string advice = ProgramAdvice(options.verb, files); !advice.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("'", files.front(), "' is no spec; ", advice));
  }
  if (options.verb == "run" && files.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("run takes one spec, and these are ", files.size(),
                     " words; `trainyard submit` takes several specs, and ",
                     ProgramAdvice(options.verb, files, /*command=*/0)));
  }
  for (const std::string& path : files) {
    TY_ASSIGN_OR_RETURN(auto documents, ReadSpecs(context, path));
    std::move(documents.begin(), documents.end(), std::back_inserter(texts));
  }
  return texts;
}

Result Submit(const Context& context, const SubmitOptions& options) {
  const SubmitFlags& flags = options.flags;
  TY_ASSIGN_OR_RETURN(const std::vector<spec_loader::SpecText> texts, TextsOf(context, options));
  if (texts.size() > 1 && options.follow) {
    return absl::InvalidArgumentError(
        absl::StrCat("--follow follows one job, and these are ", texts.size(),
                     " specs; submit them without it, then `trainyard watch`"));
  }
  if (texts.size() > 1) return SubmitMany(context, flags, texts);
  SpecFile file = spec_loader::ParseSpecText(texts.front());
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> changed, ApplyChanges(flags.spec, file));
  if (!file.mistakes.empty()) return TellMistakes(context, file, kNothing);
  if (flags.dry_run) {
    v1::SubmitOptions unused;
    TY_RETURN_IF_ERROR(CodeSender(context, nullptr).Send(file, file.spec, unused));
    return DryRun(context, flags, file, changed);
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CreateJobRequest request;
  *request.mutable_spec() = file.spec;
  request.set_request_id(RequestId(context, flags));
  TY_RETURN_IF_ERROR(TakeFlags(context, *link, flags, file.saved_spec, request));
  TY_RETURN_IF_ERROR(CodeSender(context, link.get())
                         .Send(file, *request.mutable_spec(), *request.mutable_options()));
  const auto job = CallPersistently(context, *link, &v1::JobService::Stub::CreateJob, request);
  const auto violations = GetFieldViolations(job.status());
  if (!violations.empty()) {
    spec_loader::AddViolations(file, violations, changed);
    return TellMistakes(context, file, kNothing);
  }
  TY_RETURN_IF_ERROR(job.status());
  return TellCreated(context, *link, *job, options.follow);
}

// Returns true if the clone has code, which the job had not, and would yet start in the folder of
// the job.
bool StartsElsewhere(const v1::CloneJobResponse& preview) {
  const std::string& directory = preview.job().resolved_spec().program().directory();
  bool has_gained_code = false;
  for (const v1::SpecDifference& one : preview.differences()) {
    if (one.path() == "program.directory") return false;
    if (one.path() != "program.code") continue;
    has_gained_code = one.left_json().empty() || one.left_json() == R"("")";
  }
  return has_gained_code && (absl::StartsWith(directory, "/") || absl::StartsWith(directory, "~"));
}

Result Clone(const Context& context, const CloneOptions& options) {
  const SubmitFlags& flags = options.flags;
  TY_ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(flags.spec));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::CloneJobRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveOne(*link, options.job));
  CodeSender sender(context, flags.dry_run ? nullptr : link.get());
  v1::CodeOrigin origin;
  for (const Change& change : changes) {
    v1::SpecChange* added = request.add_changes();
    added->set_path(change.path);
    added->set_value_json(change.value);
    if (change.path != "program.code" || flags.spec.code.empty()) continue;
    TY_ASSIGN_OR_RETURN(const std::string digest, sender.SendFolder(flags.spec.code, origin));
    added->set_value_json(JsonQuote(digest));
  }
  if (IsInBucket(flags.from) && flags.dry_run) {
    return absl::InvalidArgumentError(
        "--from takes a checkpoint out of a bucket, which --dry-run does not; leave one of them "
        "out");
  }
  if (!flags.from.empty()) {
    TY_ASSIGN_OR_RETURN(*request.mutable_from_checkpoint(),
                        ResolveStart(context, *link, flags.from, ""));
  }
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, *link, flags));
  if (origin.ByteSizeLong() > 0) *request.mutable_options()->mutable_code_origin() = origin;
  request.set_validate_only(true);
  TY_ASSIGN_OR_RETURN(v1::CloneJobResponse preview,
                      link->Call(&v1::JobService::Stub::CloneJob, request));
  if (!flags.spec.code.empty() && StartsElsewhere(preview)) {
    request.add_changes()->set_path("program.directory");
    TY_ASSIGN_OR_RETURN(preview, link->Call(&v1::JobService::Stub::CloneJob, request));
  }
  // Only the server knows the spec of the clone. With its memory it is checked again.
  AddMemoryNeed(context, preview.job().resolved_spec(), *request.mutable_options());
  if (request.options().has_memory_need()) {
    TY_ASSIGN_OR_RETURN(preview, link->Call(&v1::JobService::Stub::CloneJob, request));
  }
  const std::string differences =
      preview.differences().empty()
          ? absl::StrCat("equal to ", request.name(), "\n")
          : DifferencesText(preview.differences(), request.name(), "clone");
  if (flags.dry_run) {
    if (PrintOne(context, preview, "")) return link::kOk;
    context.out << differences;
    TellWarnings(context, preview.job());
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

// Declares what turns a command into a spec.
void DeclareCommand(client::Flags& flags, SubmitOptions& options) {
  flags
      .Repeated("--env", options.variables,
                "Variable of the command's environment, NAME=VALUE, or NAME for the value that it "
                "has here; may be repeated")
      .ShownAs("NAME[=VALUE]");
  flags.Rest("COMMAND...", options.command,
             "A program of your own with its words, in place of FILE");
}

}  // namespace

void AddSubmit(VerbTable& verbs) {
  verbs.Add<SubmitOptions>(
      "submit", "Submit job specs, one or thousands",
      "jobs/convnet-glyphs.yaml --set train.epochs=5 --follow\n"
      "  trainyard submit -f sweep.yaml       every document of the file\n"
      "  trainyard submit jobs/mlp-glyphs.yaml --array 100%8\n"
      "  trainyard submit --devices 2 -- python3 train.py --lr 0.1",
      [](client::Flags& flags, SubmitOptions& options) {
        flags.Words("FILE", options.files,
                    "Spec in YAML or JSON, or several with --- between them; - for standard "
                    "input; or the name of a saved spec");
        flags.Repeated("-f,--file", options.more_files, "The same; may be repeated");
        DeclareSubmitFlags(flags, options.flags);
        flags.Switch("--follow", options.follow, "Follow it to its end");
        DeclareCommand(flags, options);
      },
      Submit);
  verbs.Add<SubmitOptions>(
      "run", "Submit a job spec or a command and follow it (submit --follow)",
      "jobs/convnet-glyphs.yaml --devices 2\n"
      "  trainyard run resnet-baseline@3 --set optimizer.sgd.lr=0.05\n"
      "  trainyard run --devices 2 -- python3 train.py --lr 0.1",
      [](client::Flags& flags, SubmitOptions& options) {
        options.follow = true;
        options.verb = "run";
        // More than one word is refused later, where the user can be told how to run a program.
        flags.Words("FILE", options.files,
                    "Spec in YAML or JSON; - for standard input; or the name of a saved spec");
        DeclareSubmitFlags(flags, options.flags);
        DeclareCommand(flags, options);
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
