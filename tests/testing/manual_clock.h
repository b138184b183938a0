// A clock that stands still until a test moves it. Several threads may use it.
#pragma once

#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"

namespace trainyard::testing {

class ManualClock : public Clock {
 public:
  absl::Time Now() override { return absl::FromUnixSeconds(1'800'000'000) + Uptime(); }
  absl::Duration Uptime() override {
    const MutexLock lock(&mutex_);
    return uptime_;
  }
  void SleepFor(absl::Duration duration) override { Advance(duration); }
  void Advance(absl::Duration duration) {
    const MutexLock lock(&mutex_);
    uptime_ += duration;
  }

 private:
  Mutex mutex_;
  absl::Duration uptime_ = absl::Seconds(100);
};

}  // namespace trainyard::testing
