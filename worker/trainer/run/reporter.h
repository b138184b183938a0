// Reports how a rank does while it runs, through metrics.jsonl and progress.json.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "worker/run_dir/paths.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {

// One finished step, over all ranks.
struct FinishedStep {
  int64_t step = 0;  // updates done
  int64_t epoch = 0;
  int64_t rows = 0;  // of the global batch
  double loss = 0;
  double accuracy = 0;
  double lr = 0;
  absl::Duration data_wait;  // since the start of the run
};

// Belongs to the loop's thread and borrows the clock. Metrics are buffered and appended in whole
// lines. Only rank 0 writes them, since they are global.
class Reporter {
 public:
  // Opens metrics.jsonl, cuts off a line that a killed predecessor left unfinished, and writes the
  // first progress.
  static absl::StatusOr<Reporter> Open(const run_dir::RunDir& dir, int rank,
                                       run_dir::Progress progress, Clock& clock);

  // The caller may change it between calls. It is written with the next record.
  run_dir::Progress& progress() { return progress_; }

  // Sets how long the rank may say nothing while it trains, from the next record on.
  void set_running_silence(absl::Duration silence) { running_silence_ = silence; }
  // Promises that this rank says something again within `silence`. Replaces progress.json if the
  // promise in it is a second old, or much shorter or longer.
  absl::Status Promise(absl::Duration silence);

  // Buffers the step's metrics. Flushes them and replaces progress.json when it is time.
  absl::Status StepDone(const FinishedStep& report);
  void AddMetric(int64_t step, absl::string_view name, double value);
  // Flushes, then replaces progress.json. For states other than `running` the promise is generous.
  // A caller that knows better makes a shorter one.
  absl::Status EnterState(run_dir::Progress::State state);
  // A full disk is not an error. Metrics wait for space, up to a limit, beyond which they are lost.
  absl::Status Flush();
  // Tells that a checkpoint waits for space on the disk, or, if `status` is OK, that none does.
  void set_checkpoint_status(absl::Status status) { checkpoint_status_ = std::move(status); }
  // Flushes for the last time, after which nothing may be left, and writes progress `finished`.
  absl::Status Close();

 private:
  Reporter(run_dir::RunDir dir, int rank, UniqueFd metrics, run_dir::Progress progress,
           Clock& clock);

  absl::Status WriteProgress();
  // Notes that the disk is full now, or no longer.
  void NoteDisk(const absl::Status& status);
  // Says what the full disk holds up, or nothing.
  std::string DiskFullText() const;
  void AddSpeed(const FinishedStep& report, absl::Duration now);
  // Writes a line to the log now and then, so that whoever reads it sees that the training goes on.
  void LogTraining(const FinishedStep& report, absl::Duration now);

  run_dir::RunDir dir_;
  int rank_;
  UniqueFd metrics_;
  run_dir::Progress progress_;
  Clock* clock_;

  std::string buffer_;
  absl::Duration flush_uptime_;
  absl::Duration progress_uptime_;
  absl::Duration running_silence_;
  absl::Duration silence_;   // to be promised in the next record
  absl::Duration promised_;  // in the last record
  // The speed is taken over this window.
  absl::Duration window_uptime_;
  absl::Duration window_data_wait_;
  int64_t window_rows_ = 0;
  absl::Duration log_uptime_;       // of the last line about the training
  absl::Duration log_pause_;        // before the next one
  absl::Status disk_full_;          // the error of the last flush, if the disk was full
  absl::Status checkpoint_status_;  // the error of the last checkpoint, if the disk was full
  int64_t lost_lines_ = 0;          // since the disk is full
};

}  // namespace trainyard::trainer
