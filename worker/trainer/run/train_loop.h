// The training loop of one rank. Step() in train_loop.cc is one step of training from start to end.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/env.h"
#include "worker/checkpoint/checkpoint_pace.h"
#include "worker/data/dataset.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/trainer/run/ballot.h"
#include "worker/trainer/run/checkpoint_writer.h"
#include "worker/trainer/run/control.h"
#include "worker/trainer/run/hosting_watch.h"
#include "worker/trainer/run/prepare.h"
#include "worker/trainer/run/reporter.h"
#include "worker/trainer/run/row_source.h"
#include "worker/trainer/run/step_compute.h"
#include "worker/trainer/run/step_meter.h"
#include "worker/trainer/run/step_pace.h"
#include "worker/trainer/run/step_strategy.h"
#include "worker/trainer/run/test_split.h"
#include "worker/trainer/run/trace.h"

namespace trainyard::trainer {

// Runs the training in one thread. It borrows the reporter, the signals and the clock.
class TrainLoop {
 public:
  enum class End { kFinished, kStopped };

  TrainLoop(PreparedRun run, Reporter& reporter, const Signals& signals, Clock& clock);
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;
  ~TrainLoop();

  // Trains to the last step, or until the ranks agree to stop. In both cases the state at step() is
  // in a checkpoint when it returns OK.
  absl::StatusOr<End> Run();

  // Returns how many updates have been done and reported.
  int64_t step() const { return step_ - static_cast<int64_t>(unfinished_.size()); }
  // Returns the newest value of each metric: "train.loss", "test.accuracy", ...
  const std::map<std::string, double>& metrics() const { return metrics_; }

 private:
  // The values to report of an update that was started, besides what the executable measures.
  struct Unfinished {
    int64_t step = 0;
    double lr = 0;
  };
  // This rank's computation of a step.
  struct Computed {
    int64_t step = 0;
    int64_t rows = 0;
    absl::Duration time = {};
  };

  absl::Status Step();
  // Make the same step without and with other ranks: from the rows to an update that was started.
  absl::Status StepAlone(const StepRows& rows, double lr);
  absl::Status StepTogether(const StepRows& rows, double lr, const Ballot& ballot);
  absl::Status UpdateBlock(const parallel::Bucket& block);
  Ballot CastBallot(int64_t skipped);
  Votes CastVotes();
  // Returns true if the evaluation or checkpoint is due after this step by its number.
  bool IsDueAt(const v1::Interval& every, int64_t step) const;
  // Returns true if rank 0 wants a checkpoint after the step that begins now.
  bool WantsCheckpoint(bool will_evaluate) const;
  // Returns true if the ballots of a step come with its sums, which may be later.
  bool HearsBallotsLater() const;
  // Takes the ballots that all ranks cast in a step.
  void Hear(std::vector<Ballot> ballots);
  // Waits for the sums of steps, the oldest first, until those of `left` are not waited for.
  absl::Status FinishExchanges(size_t left);
  absl::Status WithStep(const absl::Status& status) const;
  // Measures the step that the exchange has finished.
  void MeasureStep();
  // Returns an error on every rank if any rank saw that the update before diverged.
  absl::Status CheckLoss(absl::Span<const Ballot> ballots) const;
  absl::Status AgreeOnLoss();
  absl::Status LossError(int64_t step, double loss) const;
  void StartHosting();
  void ReportHosting();
  absl::Status MoveReplicas(bool is_boundary);
  absl::Status CompileNewRows();
  // Takes and reports the metrics of updates, the oldest first, until `left` are unfinished.
  absl::Status FinishUpdates(size_t left);
  absl::Status ReportStep(const Unfinished& update, int64_t skipped,
                          const engine::StepMetrics& metrics);
  // Sets how long a step may take from now on, if others wait for it.
  void AdjustTimeout(absl::Duration limit);
  // Does so for the next step only, and promises to report within that time.
  absl::Status AllowForNextStep(absl::Duration limit);
  void SetTimeout(absl::Duration timeout);

  // Makes the evaluations and checkpoints that are due after a step.
  absl::Status AfterStep();
  absl::Status EvaluateTestSplit();
  // Evaluates the parameters that the executable has now, into metrics "<prefix>loss" and so on.
  absl::Status EvaluateWeights(const data::Dataset& dataset, absl::string_view prefix,
                               RecordedEvaluation& record);
  absl::Status GatherState();
  absl::Status StartCheckpoint();
  // Writes the state of this step, which rank 0 has whole. `request` is what it answers.
  absl::Status WriteSnapshot(int64_t request);
  absl::Status CheckpointEnded(const CheckpointWriter::Finished& finished);
  absl::Status WriteLastCheckpoint();

  PreparedRun run_;  // everything except hosting and share stays as it was prepared
  StepStrategy& strategy_;
  engine::Executable& executable_;
  parallel::GradientExchange* const exchange_;  // null if this rank trains alone
  engine::RangeUpdate* const ranges_;           // null if all parameters are updated at once
  Reporter& reporter_;
  Clock& clock_;
  ControlReader control_;
  CheckpointWriter checkpoints_;
  Trace trace_;
  StepMeter meter_;
  RowSource rows_;
  const std::unique_ptr<StepCompute> compute_;
  HostingWatch hosting_;
  TestSplit test_split_;
  StepPace pace_;
  absl::Duration next_limit_;  // that was allowed for the next step, or zero
  int64_t limited_step_ = 0;   // the step for which it was allowed

  int64_t step_;           // updates started
  int64_t gathered_step_;  // the step at which all ranks last had all of the optimizer's state
  Computed computed_;      // the last step that the exchange has finished
  std::deque<Computed> exchanged_;     // steps that it has not finished
  std::deque<Unfinished> unfinished_;  // updates
  std::deque<int64_t> skipped_;        // samples of unfinished updates, as far as all were heard
  int64_t diverged_step_ = 0;          // as this rank saw it
  Votes agreed_;                       // what was not done yet
  std::vector<Ballot> ballots_;        // the newest that were heard, by rank
  std::map<std::string, double> metrics_;
  int64_t evaluated_step_ = -1;
  RecordedEvaluation evaluation_;  // made at evaluated_step_
  int64_t checkpoint_step_ = -1;   // the newest complete one
  absl::Duration evaluation_uptime_;
  absl::Duration checkpoint_uptime_;
  const absl::Duration begin_uptime_;
  checkpoint::CheckpointPace checkpoint_pace_;
  absl::Duration checkpoint_wait_;  // what the checkpoint in flight has cost so far
  // When a checkpoint is tried again for which there was no space on the disk.
  absl::Duration checkpoint_again_uptime_ = absl::InfiniteDuration();
};

}  // namespace trainyard::trainer
