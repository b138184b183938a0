// Turns the flags of `study batch-size` into its plan.
#include "client/commands/study_options.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/spec/interval.h"

namespace trainyard::commands {
namespace {

// The largest batch of a spec, and more points than a person would wait for.
constexpr int64_t kBatchMax = 16'777'216;
constexpr size_t kStudyBatchesMax = 64;

absl::StatusOr<std::vector<int64_t>> ParseBatches(const std::string& text) {
  std::vector<int64_t> batches;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t batch = 0;
    const bool is_new = absl::SimpleAtoi(part, &batch) && batch >= 1 && batch <= kBatchMax &&
                        std::find(batches.begin(), batches.end(), batch) == batches.end();
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("--batches '", text,
                       "' is not a list of different batches; write one such as 32,64,128,256"));
    }
    batches.push_back(batch);
  }
  if (batches.size() > kStudyBatchesMax) {
    return absl::InvalidArgumentError(absl::StrCat("--batches has ", batches.size(),
                                                   " batches; give at most ", kStudyBatchesMax));
  }
  std::sort(batches.begin(), batches.end());
  return batches;
}

absl::Status TakeWarmup(const std::string& text, StudyPlan& plan) {
  if (text.empty()) return absl::OkStatus();
  if (text == "none" || text == "0") {
    plan.has_no_warmup = true;
    return absl::OkStatus();
  }
  const absl::StatusOr<v1::Interval> span = spec::ParseInterval(text);
  if (!span.ok() || !(span->has_epochs() || span->has_steps())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--warmup '", text, "' is no span; write '5 epochs', '500 steps' or none"));
  }
  plan.warmup = *span;
  return absl::OkStatus();
}

absl::Status TakeRates(const std::vector<std::string>& texts, StudyPlan& plan) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    double rate = 0;
    if (equals == std::string::npos || equals == 0 ||
        !absl::SimpleAtod(text.substr(equals + 1), &rate) || !(rate > 0) || rate > 1000) {
      return absl::InvalidArgumentError(
          absl::StrCat("--lr '", text,
                       "' is not OPTIMIZER=RATE with a rate above 0 and at most 1,000; write one "
                       "such as --lr lars=2"));
    }
    plan.rates[text.substr(0, equals)] = rate;
  }
  return absl::OkStatus();
}

}  // namespace

void DeclareStudyFlags(client::Flags& flags, StudyOptions& options) {
  flags.Word("FILE", options.source,
             "Spec in YAML or JSON; - for standard input; or the name of a saved spec");
  flags.Value("--batches", options.batches, "Global batches to train with: 32,64,128,256")
      .ShownAs("N,N,...");
  flags
      .Value("--optimizers", options.optimizers,
             "Optimizers to train with, each with every batch: sgd,lars (that of the spec)")
      .ShownAs("NAME,...");
  flags
      .Value("--target", options.target,
             "Quality up to which steps are counted: test.accuracy=0.9; by default one that all "
             "trainings reach")
      .ShownAs("METRIC=VALUE");
  flags
      .Value("--base-batch", options.base_batch,
             "Batch for which the learning rate is meant (train.global_batch of the spec)")
      .Range(1, kBatchMax);
  flags
      .Value("--scaling", options.scaling,
             "Growth of the learning rate with the batch: linear, sqrt or none (linear)")
      .OneOf({"linear", "sqrt", "none"});
  flags
      .Repeated("--lr", options.rates,
                "Learning rate of an optimizer at the base batch, such as lars=2; may be repeated")
      .ShownAs("OPTIMIZER=RATE");
  flags
      .Value("--warmup", options.warmup,
             "Warm-up of the learning rate: '5 epochs', '500 steps' or none; by default that of "
             "the spec or, without one, a tenth of the training and at most 5 epochs")
      .ShownAs("SPAN");
  flags.Repeated("--from-jobs", options.from_jobs,
                 "Jobs of a study that was submitted before, such as 12-19, in place of FILE; may "
                 "be repeated");
  flags.Value("--svg", options.svg_file, "File for the picture");
  DeclareSpecFlags(flags, options.flags.spec);
  DeclareStartFlags(flags, options.flags);
  flags.Value("--request-id", options.flags.request_id,
              "The same request sent again gives the same jobs (chosen at random otherwise)");
  flags.Switch("--dry-run", options.flags.dry_run,
               "Check and show the trainings, but submit nothing");
  flags.Switch("--detach", options.detach, "Submit the jobs, but do not wait for them");
}

absl::StatusOr<StudyPlan> StudyPlanOf(const StudyOptions& options) {
  if (options.batches.empty()) {
    return absl::InvalidArgumentError(
        "no batches are given; write some such as --batches 32,64,128,256");
  }
  StudyPlan plan;
  TY_ASSIGN_OR_RETURN(plan.batches, ParseBatches(options.batches));
  for (const absl::string_view part : absl::StrSplit(options.optimizers, ',', absl::SkipEmpty())) {
    const std::string name(absl::StripAsciiWhitespace(part));
    const auto known = std::find(plan.optimizers.begin(), plan.optimizers.end(), name);
    if (known == plan.optimizers.end()) plan.optimizers.push_back(name);
  }
  plan.base_batch = options.base_batch;
  plan.scaling = options.scaling == "sqrt"   ? StudyScaling::kSquareRoot
                 : options.scaling == "none" ? StudyScaling::kNone
                                             : StudyScaling::kLinear;
  TY_RETURN_IF_ERROR(TakeWarmup(options.warmup, plan));
  TY_RETURN_IF_ERROR(TakeRates(options.rates, plan));
  return plan;
}

absl::StatusOr<std::optional<StudyTarget>> StudyTargetOf(const StudyOptions& options) {
  if (options.target.empty()) return std::optional<StudyTarget>();
  TY_ASSIGN_OR_RETURN(StudyTarget target, ParseStudyTarget(options.target));
  return std::optional<StudyTarget>(std::move(target));
}

}  // namespace trainyard::commands
