// Does now and then what no request asks for: deletes jobs that ended long ago, and watches the
// memory of the process.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/memory_watch.h"
#include "server/runtime/runtime.h"

namespace trainyard {

// Owns a thread. It borrows everything that it is given.
class Housekeeper {
 public:
  struct Options {
    // Jobs are deleted this long after their end, or never if it is infinite.
    absl::Duration keep_finished_jobs = absl::InfiniteDuration();
    MemoryWatch::Ports memory;
    int64_t memory_high = 0;
    // Looks after connections, once a second.
    std::function<void()> sweep_connections = [] {};
  };

  Housekeeper(Options options, runtime::Runtime& runtime, Clock& clock);
  ~Housekeeper();

 private:
  void Run();
  // Deletes some jobs that have ended long ago. Returns true if there may be more.
  bool DeleteSome();
  // Returns true if the wall clock was set while the server runs. The ages of jobs mean nothing
  // then.
  bool WasClockSet();

  const Options options_;
  runtime::Runtime& runtime_;
  Clock& clock_;
  MemoryWatch memory_;
  const absl::Duration boot_time_;  // the wall clock minus the uptime, at the start
  bool warned_ = false;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard
