// Keeps all sweeps going: it looks at their trials, writes down what has happened and what is
// decided, and then acts on it. Whatever interrupts it, the next look finds what is left to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/core/yard/inputs.h"
#include "server/runtime/board.h"
#include "server/runtime/notifier.h"
#include "server/runtime/runtime.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/sweep_store.h"
#include "server/sweeps/sweep.h"
#include "trainyard/v1/sweep_service.pb.h"

namespace trainyard::sweeps {

// The keeper. It is thread-safe, and borrows what it is given.
class Keeper {
 public:
  struct Options {
    // Makes the submission of a job of a trial for the owner of the sweep. Called on the keeper's
    // own thread.
    std::function<absl::StatusOr<core::SubmitJob>(const store::SweepRecord&, const NewJob&)> submit;
    // Trials are looked at this often, besides whenever something has happened to their jobs.
    absl::Duration look_every = absl::Seconds(1);
    // News that come together are looked at together.
    absl::Duration gather = absl::Milliseconds(20);
  };

  // Loads all sweeps.
  static absl::StatusOr<std::unique_ptr<Keeper>> Open(Options options, store::SweepStore& store,
                                                      runtime::Runtime& runtime,
                                                      const runtime::Board& board,
                                                      runtime::Notifier& notifier,
                                                      store::MetricsStore& metrics, Clock& clock);
  ~Keeper();

  void Start();
  // It may be called again.
  void Stop();

  // Begins a sweep, and returns its number. A repeated request of the same user begins no other
  // one; with another hash it returns ALREADY_EXISTS (REQUEST_ID_REUSED).
  absl::StatusOr<int64_t> Create(store::SweepRecord record);
  // Writes down what somebody asks of a sweep: kStopRequested, kCancelRequested, kResumeRequested
  // or kRetryRequested. Returns SWEEP_NOT_FOUND, or FAILED_PRECONDITION (SWEEP_STATE_CONFLICT) for
  // one that has ended and is to be resumed.
  absl::Status Ask(int64_t sweep, core::sweeping::EntryKind kind, const std::string& actor);
  // Forgets a sweep that has ended. Returns SWEEP_NOT_FOUND, or FAILED_PRECONDITION
  // (SWEEP_STATE_CONFLICT).
  absl::Status Delete(int64_t sweep);

  // Returns a sweep as it was asked for, or SWEEP_NOT_FOUND.
  absl::StatusOr<store::SweepRecord> Find(int64_t sweep) const;
  // Shows a sweep, with its decisions behind the sequence `decisions_after` if that is given.
  absl::StatusOr<v1::Sweep> Show(int64_t sweep, std::optional<int64_t> decisions_after = {});
  // Calls `visit` with the sweeps whose numbers are below `before` (all if it is 0), the newest
  // first, until it returns false. They have their best trial alone.
  void ForEach(int64_t before, absl::FunctionRef<bool(const v1::Sweep&)> visit);

 private:
  Keeper(Options options, store::SweepStore& store, runtime::Runtime& runtime,
         const runtime::Board& board, store::MetricsStore& metrics, Clock& clock)
      : options_(std::move(options)),
        store_(store),
        runtime_(runtime),
        board_(board),
        metrics_(metrics),
        clock_(clock) {}
  absl::Status Load();
  void Run();
  // Waits for news, and returns false if the keeper stops.
  bool WaitForNews();
  // Looks at one sweep, and acts.
  void LookAt(int64_t number);
  // Writes down what has happened and what is decided then. Returns false if that is nothing.
  absl::StatusOr<bool> Append(Sweep& sweep, const std::vector<core::sweeping::Entry>& happened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries actions out, and waits for their answers.
  void Act(int64_t number, const store::SweepRecord& record, std::vector<Action> actions);
  void Watch(JobId job, int64_t sweep);
  int64_t NowUs() { return absl::ToUnixMicros(clock_.Now()); }

  const Options options_;
  store::SweepStore& store_;
  runtime::Runtime& runtime_;
  const runtime::Board& board_;
  store::MetricsStore& metrics_;
  Clock& clock_;

  mutable Mutex mutex_;
  std::map<int64_t, Sweep> sweeps_ ABSL_GUARDED_BY(mutex_);

  // This is taken for moments alone, because the writer of the server waits for it.
  Mutex news_mutex_;  // taken after mutex_
  CondVar has_news_;
  std::map<JobId, int64_t> watched_ ABSL_GUARDED_BY(news_mutex_);  // sweeps by jobs
  std::set<int64_t> news_ ABSL_GUARDED_BY(news_mutex_);            // sweeps to look at
  bool is_stopping_ ABSL_GUARDED_BY(news_mutex_) = false;
  std::unique_ptr<runtime::Notifier::Subscription> subscription_;
  std::thread thread_;
};

}  // namespace trainyard::sweeps

namespace trainyard::error {

// SWEEP_NOT_FOUND: `trainyard sweep ls` lists them.
absl::Status SweepNotFound(int64_t sweep);

}  // namespace trainyard::error
