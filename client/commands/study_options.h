// Reads the flags of `study batch-size`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/batch_study.h"
#include "client/commands/batch_study_specs.h"
#include "client/commands/submit_options.h"
#include "client/flags.h"

namespace trainyard::commands {

struct StudyOptions {
  std::string source;                  // a spec file or the name of a saved spec
  std::vector<std::string> from_jobs;  // selectors of jobs of a study that was submitted before
  std::string batches;                 // "32,64,128"
  std::string optimizers;              // "sgd,lars"
  std::vector<std::string> rates;      // each "OPTIMIZER=RATE"
  std::string target;                  // "test.accuracy=0.9"
  int64_t base_batch = 0;
  std::string scaling = "linear";
  std::string warmup;  // "5 epochs", "500 steps" or "none"
  SubmitFlags flags;
  bool detach = false;
  std::string svg_file;
};

void DeclareStudyFlags(client::Flags& flags, StudyOptions& options);

// Return INVALID_ARGUMENT if a flag cannot be read.
absl::StatusOr<StudyPlan> StudyPlanOf(const StudyOptions& options);
absl::StatusOr<std::optional<StudyTarget>> StudyTargetOf(const StudyOptions& options);

}  // namespace trainyard::commands
