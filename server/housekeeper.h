// Does now and then what no request asks for: measures what jobs take on the disk, deletes what is
// kept no longer, and watches the memory of the process.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/memory_watch.h"
#include "server/retention.h"
#include "server/runtime/runtime.h"

namespace trainyard {

// Owns a thread. It borrows everything that it is given.
class Housekeeper {
 public:
  struct Options {
    KeepRules keep;
    // Returns what the logs and metrics of a job take.
    std::function<absl::StatusOr<core::StreamBytes>(JobId)> measure = [](JobId) {
      return core::StreamBytes();
    };
    // Returns true for a job that people want to keep although its spec does not say so.
    RetentionReview::IsKept is_kept = [](const core::JobRecord&) { return false; };
    // Called before each deletion, on the thread of the housekeeper.
    std::function<void(const core::DeleteJob&)> before_deletion = [](const core::DeleteJob&) {};
    MemoryWatch::Ports memory;
    int64_t memory_high = 0;
    // Looks after connections, once a second.
    std::function<void()> sweep_connections = [] {};
    // Removes code that no job has any more.
    std::function<void()> sweep_code = [] {};
  };

  Housekeeper(Options options, runtime::Runtime& runtime, Clock& clock);
  ~Housekeeper();

 private:
  void Run();
  bool IsStopped();
  // Measures the jobs that may have grown.
  void Measure();
  // Deletes some of what is kept no longer. Returns true if there may be more.
  bool DeleteSome();
  // Finds what is kept no longer.
  void Review();
  // Returns true if the wall clock was set while the server runs. The ages of jobs mean nothing
  // then.
  bool WasClockSet();

  const Options options_;
  runtime::Runtime& runtime_;
  Clock& clock_;
  MemoryWatch memory_;
  const absl::Duration boot_time_;  // the wall clock minus the uptime, at the start
  bool warned_ = false;
  std::deque<core::DeleteJob> found_;           // by the last review, and not deleted yet
  absl::Time measured_ = absl::InfinitePast();  // when the last round began
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard
