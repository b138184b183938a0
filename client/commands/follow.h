// Follows jobs: tells what happens while they run and how they end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/commands/context.h"
#include "client/output/progress.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Tells the changes of one job on stderr as they come: on a terminal by a bar that is redrawn in
// place, elsewhere by a line now and then. It borrows the context.
class JobReporter {
 public:
  explicit JobReporter(const Context& context) : context_(context) {}

  void OnJob(const v1::Job& job);
  void OnPoints(const std::vector<v1::MetricPoint>& points);
  void OnConnection(bool is_back);
  // Draws what has changed, if it is time to.
  void Tick();
  // Takes the bar away.
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
  Evaluation evaluation_;  // the newest
  bool has_test_accuracy_ = false;
  bool is_drawn_ = false;
  bool is_dirty_ = false;
  absl::Duration last_draw_ = -absl::InfiniteDuration();
  int64_t last_epoch_ = -1;
  int64_t last_step_ = -1;
};

// Follows the job to its end and tells how it ended: 0 where it succeeded, 8 where it did not, 130
// after Ctrl-C, which ends the following and not the job.
Result FollowJob(const Context& context, link::ServerLink& link, const std::string& name);

// Tells the curve, the accuracy, the checkpoints and what can be done next, on stderr.
void TellEnd(const Context& context, link::ServerLink& link, const v1::Job& job);

// "worker-a: cpu-0, cpu-1".
std::string PlacementText(const v1::Job& job);

}  // namespace trainyard::commands
