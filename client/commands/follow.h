// Follows jobs: prints what happens while they run, and how they end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/output/progress.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Prints the changes of one job on stderr as they come: as a bar that is redrawn in place on a
// terminal, and as a line now and then elsewhere. It borrows the context.
class JobReporter {
 public:
  explicit JobReporter(const Context& context) : context_(context) {}

  void OnJob(const v1::Job& job);
  void OnPoints(const std::vector<v1::MetricPoint>& points);
  void OnConnection(bool is_back);
  // Draws what has changed if enough time has passed since the last drawing.
  void Tick();
  // Removes the bar from the terminal.
  void Clear();

  const v1::Job& job() const { return job_; }

 private:
  void Tell(absl::string_view text);
  void OnEvaluation(const v1::MetricPoint& point);
  void TellState(const v1::Job& before);
  void TellQueue(const v1::Job& before);

  const Context& context_;
  v1::Job job_;
  output::ProgressView view_;
  struct Evaluation {
    int64_t step = -1;
    std::optional<double> accuracy = {};
    std::optional<double> loss = {};
  };
  Evaluation evaluation_;  // the newest evaluation
  bool has_test_accuracy_ = false;
  bool is_drawn_ = false;
  bool is_dirty_ = false;
  absl::Duration last_draw_ = -absl::InfiniteDuration();
  int64_t last_epoch_ = -1;
  int64_t last_step_ = -1;
};

// Follows the job to its end and prints how it ended. Returns exit code 0 if it succeeded, 8 if it
// did not, and 130 after Ctrl-C, which stops the following but not the job.
Result FollowJob(const Context& context, link::ServerLink& link, const std::string& name);

// Prints on stderr the curve, the accuracy, the checkpoints and what the user can do next.
void TellEnd(const Context& context, link::ServerLink& link, const v1::Job& job);

// Returns the class, the reason and the message of a failure: "(user error, NAN_LOSS): ...".
std::string FailureText(const v1::Failure& failure);
// Returns how long the job ran, or an empty text if it has not both begun and ended.
std::string TookText(const v1::Job& job);

// Returns the devices of the job's attempt: "worker-a: cpu-0, cpu-1".
std::string PlacementText(const v1::Job& job);

}  // namespace trainyard::commands
