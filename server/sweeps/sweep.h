// One sweep under way: its state, the jobs of its trials, and what has to be done about them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/sweep/space.h"
#include "server/core/sweeping/state.h"
#include "server/runtime/board.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/sweep_store.h"
#include "server/sweeps/begin.h"
#include "server/sweeps/objective_watch.h"

namespace trainyard::sweeps {

// A job that has to be made for a trial.
struct NewJob {
  int32_t trial = 0;
  int32_t generation = 0;
  Begin begin;
};

// Something to do about a job of a trial.
struct Action {
  enum class Kind { kSubmit, kSuspend, kResume, kCancel };
  Kind kind = Kind::kSubmit;
  NewJob made;         // for kSubmit
  JobId job;           // for the others
  std::string reason;  // for kSuspend and kCancel
};

// The sweep. It is not thread-safe.
class Sweep {
 public:
  // Computes the state from what is kept. Returns DATA_LOSS if the record cannot be read.
  static absl::StatusOr<Sweep> Load(store::SweepRecord record, const store::SweepHistory& history);

  // Looks at the jobs of the trials, and returns what has happened to them since the last entry.
  std::vector<core::sweeping::Entry> Observe(const runtime::Board& board,
                                             store::MetricsStore& metrics, int64_t now_us);
  // Returns the entries that the record gets when these things have happened: those of them that
  // matter, and what is decided then. Nothing changes yet.
  std::vector<core::sweeping::Entry> Extend(const std::vector<core::sweeping::Entry>& happened,
                                            int64_t now_us) const;
  // Takes over entries that are on disk.
  absl::Status TakeOver(const std::vector<core::sweeping::Entry>& entries);

  // Returns what has to be done about the jobs, by the state and by what the board shows.
  std::vector<Action> Actions(const runtime::Board& board);
  // Notes the job of a trial.
  void NoteJob(const store::TrialJob& job);
  // Notes that a job could not be made. If it never can be, the trial fails at the next look.
  void NoteRefusal(const NewJob& job, const absl::Status& status);

  const store::SweepRecord& record() const { return record_; }
  const core::sweeping::State& state() const { return *state_; }
  int64_t next_sequence() const { return next_sequence_; }
  // The time of the entry that ended it, in microseconds since 1970; 0 while it has not ended.
  int64_t end_us() const { return end_us_; }
  // The jobs of a trial, in order of their generations.
  std::vector<JobId> JobsOf(int32_t trial) const;
  const sweep::Values& ValuesOf(int32_t trial) const {
    return trials_[static_cast<size_t>(trial)].begin.values;
  }
  // Returns true if it has ended and nothing was left to do at the last look.
  bool is_settled() const { return is_settled_; }
  // Says what keeps it from going on; empty if nothing does.
  const std::string& trouble() const { return trouble_; }
  void set_trouble(std::string trouble) { trouble_ = std::move(trouble); }
  // Returns the device time that its jobs have used, in microseconds.
  int64_t DeviceTime(const runtime::Board& board, int64_t now_us) const;

 private:
  // The knowledge of a trial beside its state.
  struct TrialWork {
    Begin begin;
    std::map<int32_t, JobId> jobs;        // by generation
    std::optional<ObjectiveWatch> watch;  // of the newest job
    // The newest job has to be suspended, or resumed, and was not yet seen to be. What people do to
    // it afterwards stays.
    bool must_suspend = false;
    bool must_resume = false;
    std::string refusal;  // why its job can never be made
  };

  explicit Sweep(store::SweepRecord record);
  // Returns how a job begins that an entry decides, as the text of the entry.
  std::string BeginOf(const core::sweeping::Entry& entry) const;
  JobId NewestJob(int32_t trial) const;
  void ObserveTrial(int32_t index, const runtime::Board& board, store::MetricsStore& metrics,
                    std::vector<core::sweeping::Entry>& happened);
  void AddActions(int32_t index, const runtime::Board& board, std::vector<Action>& actions);

  store::SweepRecord record_;
  sweep::Space space_;
  std::optional<core::sweeping::State> state_;
  std::vector<TrialWork> trials_;  // one for each trial that has begun
  int64_t next_sequence_ = 1;
  int64_t end_us_ = 0;
  bool is_settled_ = false;
  std::string trouble_;
};

}  // namespace trainyard::sweeps
