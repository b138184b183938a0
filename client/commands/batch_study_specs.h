// Makes the specs of a batch-size study: one for each optimizer and batch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::commands {

// The way in which the learning rate grows with the batch.
enum class StudyScaling { kLinear, kSquareRoot, kNone };

struct StudyPlan {
  std::vector<int64_t> batches;
  std::vector<std::string> optimizers = {};  // empty for the one of the spec
  int64_t base_batch = 0;                    // 0 for train.global_batch of the spec
  StudyScaling scaling = StudyScaling::kLinear;
  // A span of epochs or steps. If it is unset, the warm-up is that of the spec or, if that has
  // none, a tenth of the training and at most five epochs.
  std::optional<v1::Interval> warmup = {};
  bool has_no_warmup = false;
  std::map<std::string, double> rates = {};  // the base rates of optimizers that the user gave
};

// One training of the study, as it is submitted.
struct StudySpec {
  std::string optimizer;
  int64_t batch = 0;
  double lr = 0;
  v1::JobSpec spec;
};

// Returns the specs by optimizer and then by batch. All train on as many samples: spans in steps
// are those of the base batch, and become shorter for larger ones. The specs are not checked by
// the rules. Returns INVALID_ARGUMENT if the plan names an optimizer that there is none of, or
// `written` has mistakes.
absl::StatusOr<std::vector<StudySpec>> MakeStudySpecs(const v1::JobSpec& written,
                                                      const StudyPlan& plan);

// Returns the name of the optimizer of a spec, such as "sgd", and the rate with which a resolved
// spec trains after its warm-up.
std::string StudyOptimizerOf(const v1::JobSpec& spec);
double StudyRateOf(const v1::JobSpec& resolved);

// Returns the name of the study to which a job of this name belongs: "a" for "a-b128-sgd".
std::string StudyTitleOf(const std::string& job_name, int64_t batch, const std::string& optimizer);

}  // namespace trainyard::commands
