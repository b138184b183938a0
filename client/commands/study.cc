// study batch-size trains one spec with several batches, and reports how many steps each needs to
// the same quality.
#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/commands/batch_study_svg.h"
#include "client/commands/batch_study_table.h"
#include "client/commands/call_persistently.h"
#include "client/commands/load_spec.h"
#include "client/commands/memory_need.h"
#include "client/commands/selector.h"
#include "client/commands/study_follow.h"
#include "client/commands/study_options.h"
#include "client/commands/verbs.h"
#include "client/output/csv.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

absl::Status ProgramRefused(const std::string& source) {
  return absl::InvalidArgumentError(
      absl::StrCat(source,
                   " runs a program of its own; a batch-size study changes the batch and the "
                   "optimizer of models, which a program sets itself; use `trainyard sweep run`"));
}

std::string PointText(const StudySpec& one) {
  return absl::StrCat(one.optimizer, ", batch ", one.batch);
}

// Returns "12-15,18" for these jobs.
std::string JobRange(const std::vector<v1::Job>& jobs) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const v1::Job& job : jobs) {
    const auto id = ParseJobName(job.name());
    if (!id.ok()) continue;
    const bool is_next = !spans.empty() && spans.back().second + 1 == id->value;
    if (!is_next) spans.emplace_back(id->value, id->value);
    spans.back().second = id->value;
  }
  return absl::StrJoin(spans, ",", [](std::string* out, const auto& span) {
    absl::StrAppend(out, span.first);
    if (span.second > span.first) absl::StrAppend(out, "-", span.second);
  });
}

// The trainings of a study, checked one after the other so that all mistakes are found before
// anything is submitted.
class StudySubmitter {
 public:
  StudySubmitter(const Context& context, link::ServerLink& link, const StudyOptions& options,
                 std::vector<StudySpec> specs, v1::SubmitOptions submit_options)
      : context_(context),
        link_(link),
        options_(options),
        specs_(std::move(specs)),
        submit_options_(std::move(submit_options)),
        planner_(context.surroundings.binary_dir),
        prefix_(options.flags.request_id.empty() ? MakeUuid(context.rng)
                                                 : options.flags.request_id) {}

  // Prints the mistakes of all specs, and returns false if there are any.
  absl::StatusOr<bool> Check() {
    size_t wrong = 0;
    for (const StudySpec& one : specs_) {
      TY_ASSIGN_OR_RETURN(const std::string mistake, MistakeOf(one));
      if (mistake.empty()) continue;
      ++wrong;
      context_.err << PointText(one) << ": " << mistake << "\n";
    }
    if (wrong == 0) return true;
    context_.err << context_.terminal.Style("1;31", "error:") << " " << wrong << " of "
                 << Counted(specs_.size(), "training") << " cannot run; nothing was submitted\n"
                 << std::flush;
    return false;
  }

  // Submits all, so that the queue decides when each runs.
  absl::StatusOr<std::vector<v1::Job>> Submit() {
    std::vector<v1::Job> jobs;
    for (const StudySpec& one : specs_) {
      auto job =
          CallPersistently(context_, link_, &v1::JobService::Stub::CreateJob, RequestFor(one));
      if (!job.ok()) {
        return Annotate(job.status(), jobs.empty()
                                          ? PointText(one)
                                          : absl::StrCat(PointText(one), ", after jobs ",
                                                         JobRange(jobs), " were submitted"));
      }
      context_.Say(
          absl::StrCat(PointText(one), ", rate ", output::NumberText(one.lr), ": ", job->name()));
      jobs.push_back(*std::move(job));
    }
    return jobs;
  }

 private:
  v1::CreateJobRequest RequestFor(const StudySpec& one) {
    v1::CreateJobRequest request;
    *request.mutable_spec() = one.spec;
    *request.mutable_options() = submit_options_;
    const auto need = planner_.NeedOf(one.spec);
    if (need.has_value()) *request.mutable_options()->mutable_memory_need() = *need;
    request.set_request_id(absl::StrCat(prefix_, "/", one.spec.name()));
    return request;
  }

  // Returns why a training cannot run, or an empty text. Returns an error if the server cannot be
  // asked.
  absl::StatusOr<std::string> MistakeOf(const StudySpec& one) {
    const auto resolved = spec::ResolveSpec(one.spec);
    if (!resolved.ok()) return Words(resolved.status());
    v1::CreateJobRequest request = RequestFor(one);
    request.set_validate_only(true);
    request.clear_request_id();
    const auto job = link_.Call(&v1::JobService::Stub::CreateJob, request);
    if (absl::IsInvalidArgument(job.status()) || absl::IsFailedPrecondition(job.status())) {
      return Words(job.status());
    }
    TY_RETURN_IF_ERROR(job.status());
    if (!job->explanation().infeasible() || options_.flags.wait_for_devices) return std::string();
    return absl::StrCat("the pool as it is can never hold it: ",
                        absl::StrJoin(job->queue_reasons(), "; "));
  }

  static std::string Words(const absl::Status& status) {
    const std::vector<FieldViolation> violations = GetFieldViolations(status);
    if (violations.empty()) return std::string(status.message());
    return absl::StrJoin(violations, "; ", [](std::string* out, const FieldViolation& one) {
      absl::StrAppend(out, absl::StripPrefix(one.field, "spec."), ": ", one.description);
    });
  }

  const Context& context_;
  link::ServerLink& link_;
  const StudyOptions& options_;
  const std::vector<StudySpec> specs_;
  const v1::SubmitOptions submit_options_;
  MemoryPlanner planner_;
  const std::string prefix_;
};

// Prints what would be submitted.
void TellPlannedStudy(const Context& context, const std::vector<StudySpec>& specs) {
  using Align = output::Table::Align;
  output::Table table({{"OPTIMIZER", Align::kLeft},
                       {"BATCH", Align::kRight},
                       {"LR", Align::kRight},
                       {"WARM-UP", Align::kRight},
                       {"NAME", Align::kLeft}});
  for (const StudySpec& one : specs) {
    const v1::ScheduleSpec& schedule = one.spec.schedule();
    table.AddRow({one.optimizer, absl::StrCat(one.batch), output::NumberText(one.lr),
                  schedule.has_warmup_steps() ? absl::StrCat(schedule.warmup_steps(), " steps")
                                              : absl::StrCat(schedule.warmup_epochs(), " epochs"),
                  one.spec.name()});
  }
  context.out << table.Render() << std::flush;
  context.Say(absl::StrCat("these are all ", specs.size(), " trainings; nothing was submitted"));
}

// Returns the jobs of a study that was submitted before.
absl::StatusOr<std::vector<v1::Job>> FetchStudyJobs(link::ServerLink& link,
                                                    const StudyOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      ResolveSelectors(link, options.from_jobs));
  std::vector<v1::Job> jobs;
  std::map<std::pair<std::string, int64_t>, std::string> known;
  for (const std::string& name : names) {
    v1::GetJobRequest get;
    get.set_name(name);
    TY_ASSIGN_OR_RETURN(v1::Job job, link.Call(&v1::JobService::Stub::GetJob, get));
    const v1::JobSpec& spec = job.resolved_spec();
    if (spec.has_program()) return ProgramRefused(name);
    const auto [it, is_new] =
        known.emplace(std::make_pair(StudyOptimizerOf(spec), spec.train().global_batch()), name);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat(it->second, " and ", name, " both train with ", StudyOptimizerOf(spec),
                       " and batch ", spec.train().global_batch(), "; name one of them"));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void PrintBatchStudy(const Context& context, const BatchStudy& study) {
  switch (context.options.format) {
    case Format::kTable:
    case Format::kWide:
      context.out << BatchStudyText(study);
      break;
    case Format::kJson:
      context.out << BatchStudyJson(study, /*indented=*/true);
      break;
    case Format::kJsonLines:
      context.out << BatchStudyJson(study, /*indented=*/false);
      break;
    case Format::kYaml:
      context.out << output::JsonToYaml(BatchStudyJson(study, /*indented=*/false));
      break;
    case Format::kCsv:
      context.out << output::JsonToCsv(BatchStudyRowsJson(study));
      break;
    case Format::kName:
      for (const StudyRow& row : study.rows) context.out << row.run.job << "\n";
      break;
  }
  context.out << std::flush;
}

std::string ReportCommand(const StudyOptions& options, const std::vector<v1::Job>& jobs) {
  return absl::StrCat(
      "trainyard study batch-size --from-jobs ", JobRange(jobs),
      options.target.empty() ? "" : absl::StrCat(" --target '", options.target, "'"),
      options.svg_file.empty() ? "" : absl::StrCat(" --svg '", options.svg_file, "'"));
}

// Waits for the jobs, and reports what came out.
Result ReportStudy(const Context& context, link::ServerLink& link, const StudyOptions& options,
                   const std::vector<v1::Job>& jobs, std::optional<StudyTarget> target) {
  TY_ASSIGN_OR_RETURN(const auto ended, FollowStudy(context, link, jobs));
  if (!ended.has_value()) {
    context.err << "\nstopped following; the jobs continue\n  " << ReportCommand(options, jobs)
                << "     follows them again, and reports\n  trainyard cancel " << JobRange(jobs)
                << "     cancels them\n"
                << std::flush;
    return link::kInterrupted;
  }
  std::vector<StudyRun> runs;
  bool all_succeeded = true;
  for (const v1::Job& job : *ended) {
    TY_ASSIGN_OR_RETURN(StudyRun run,
                        FetchStudyRun(link, job, target.has_value() ? target->metric : ""));
    all_succeeded = all_succeeded && run.failure.empty();
    runs.push_back(std::move(run));
  }
  const std::string title = StudyTitleOf(ended->front().resolved_spec().name(), runs.front().batch,
                                         runs.front().optimizer);
  const BatchStudy study = MakeBatchStudy(title, std::move(runs), std::move(target));
  PrintBatchStudy(context, study);
  if (!options.svg_file.empty()) {
    TY_RETURN_IF_ERROR(ReplaceFile(options.svg_file, BatchStudySvg(study)));
    context.Say(absl::StrCat("wrote ", options.svg_file));
  }
  return all_succeeded ? link::kOk : link::kJobEndedBadly;
}

Result ReportJobs(const Context& context, const StudyOptions& options,
                  std::optional<StudyTarget> target) {
  if (!options.source.empty() || !options.batches.empty()) {
    return absl::InvalidArgumentError(
        "--from-jobs takes the trainings as they are; leave FILE and --batches out");
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, FetchStudyJobs(*link, options));
  return ReportStudy(context, *link, options, jobs, std::move(target));
}

Result StudyBatchSize(const Context& context, const StudyOptions& options) {
  TY_ASSIGN_OR_RETURN(std::optional<StudyTarget> target, StudyTargetOf(options));
  if (!options.from_jobs.empty()) return ReportJobs(context, options, std::move(target));
  if (options.source.empty()) {
    return absl::InvalidArgumentError(
        "no spec is given; write `trainyard study batch-size job.yaml --batches 32,64,128`, or "
        "--from-jobs with the jobs of a study that was submitted before");
  }
  TY_ASSIGN_OR_RETURN(const StudyPlan plan, StudyPlanOf(options));
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, options.source));
  TY_RETURN_IF_ERROR(ApplyChanges(options.flags.spec, file).status());
  if (!file.mistakes.empty()) return TellMistakes(context, file, "nothing was submitted");
  if (file.spec.has_program()) return ProgramRefused(file.name);
  if (file.spec.has_sweep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name,
                     " is a sweep, whose trials may have other batches; take its "
                     "`sweep` out, or use `trainyard sweep run`"));
  }
  TY_ASSIGN_OR_RETURN(std::vector<StudySpec> specs, MakeStudySpecs(file.spec, plan));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(v1::SubmitOptions submit, SubmitOptionsOf(context, *link, options.flags));
  submit.set_saved_spec(file.saved_spec);
  StudySubmitter submitter(context, *link, options, specs, std::move(submit));
  TY_ASSIGN_OR_RETURN(const bool is_right, submitter.Check());
  if (!is_right) return link::kUsage;
  if (options.flags.dry_run) {
    TellPlannedStudy(context, specs);
    return link::kOk;
  }
  TY_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, submitter.Submit());
  if (!options.detach) return ReportStudy(context, *link, options, jobs, std::move(target));
  if (!PrintResources(context, jobs)) {
    for (const v1::Job& job : jobs) context.out << job.name() << "\n";
    context.out << std::flush;
  }
  context.Say(absl::StrCat(ReportCommand(options, jobs), " waits for them, and reports"));
  return link::kOk;
}

}  // namespace

void AddStudy(VerbTable& verbs) {
  verbs.Group("study", "Studies: many trainings of one spec that answer a question");
  verbs.Add<StudyOptions>(
      "study batch-size",
      "Train a spec with several batches, and report how many steps and how much time each needs "
      "to the same quality",
      "jobs/convnet-glyphs.yaml --batches 32,64,128,256 --svg study.svg\n"
      "  trainyard study batch-size job.yaml --batches 64,256,1024 --optimizers sgd,lars \\\n"
      "      --target test.accuracy=0.9\n"
      "  trainyard study batch-size --from-jobs 12-19",
      DeclareStudyFlags, StudyBatchSize);
}

}  // namespace trainyard::commands
