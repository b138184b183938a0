// Computes what a batch-size study comes to, by pure functions: how many steps each batch needs to
// the same quality, and up to which batch larger ones pay (Shallue et al. 2018, arXiv:1811.03600).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::commands {

// A batch still scales well if its steps to the target fall at least this much as fast as with
// perfect scaling, where twice the batch needs half the steps.
inline constexpr double kKneeScaling = 0.8;

// A point of a metric.
struct StudyPoint {
  int64_t step = 0;
  double value = 0;
  double seconds = 0;  // when it was measured, since 1970
  int attempt = 1;
};
// The points by the name of their metric, in ascending steps.
using StudySeries = std::map<std::string, std::vector<StudyPoint>>;

// One training of the study, and what it has told.
struct StudyRun {
  std::string job;
  std::string optimizer;
  int64_t batch = 0;
  double lr = 0;
  std::string state = {};
  std::string failure = {};    // empty if it succeeded
  double steps_per_epoch = 0;  // 0 if unknown
  StudySeries series = {};
};

// The quality to which all trainings are compared.
struct StudyTarget {
  std::string metric;
  double value = 0;
  // A sentence without a full stop that says how it was chosen; empty if the user has given it.
  std::string reason = {};

  bool IsReachedBy(double result) const;
};

// Reads "test.accuracy=0.9".
absl::StatusOr<StudyTarget> ParseStudyTarget(absl::string_view text);

// Chooses what every training has reached: the worst of their best values, and a hundredth less
// good. Trainings that failed do not count. The metric is test.accuracy, or test.loss or train.loss
// if no training has the ones before it. Returns nothing if no training has told a value.
std::optional<StudyTarget> ChooseStudyTarget(const std::vector<StudyRun>& runs);

// A row says what came out at one batch. It leaves unset what is unknown or was not reached.
struct StudyRow {
  StudyRun run;
  std::optional<double> best = {};
  // Counted to the first measurement that has reached the target.
  std::optional<int64_t> steps = {};
  std::optional<double> epochs = {};
  // Time in which it trained and evaluated, without waits in the queue and repeated steps.
  std::optional<double> seconds = {};
  std::optional<double> samples_per_s = {};
  // The steps that perfect scaling from the smallest batch would need, as a share of `steps`.
  std::optional<double> scaling = {};
  // It is the largest batch up to which `scaling` is at least kKneeScaling.
  bool is_knee = false;
};

struct BatchStudy {
  std::string title;
  // Unset if no training has told a value.
  std::optional<StudyTarget> target;
  // By optimizer in the order in which they were given, then by batch.
  std::vector<StudyRow> rows;

  // Returns the optimizers in their order.
  std::vector<std::string> Optimizers() const;
  // Returns the rows of an optimizer, in ascending batches.
  std::vector<const StudyRow*> RowsOf(absl::string_view optimizer) const;
};

// Computes the rows. Without a target, one is chosen.
BatchStudy MakeBatchStudy(std::string title, std::vector<StudyRun> runs,
                          std::optional<StudyTarget> target);

// Returns the seconds of training up to a step: the time between the points of each attempt, and
// the mean of a step for each step between the attempts and before the first point. Returns nothing
// if there are no two points of one attempt.
std::optional<double> StudySeconds(const StudySeries& series, int64_t step);

}  // namespace trainyard::commands
