// A clock that stands still until it is told to move.
#pragma once

#include "absl/time/time.h"
#include "common/base/env.h"

namespace trainyard::trainer {

class ManualClock : public Clock {
 public:
  absl::Time Now() override { return absl::FromUnixSeconds(1'790'000'000) + uptime_; }
  absl::Duration Uptime() override { return uptime_; }
  void SleepFor(absl::Duration duration) override { Advance(duration); }
  void Advance(absl::Duration duration) { uptime_ += duration; }

 private:
  absl::Duration uptime_ = absl::Seconds(100);
};

}  // namespace trainyard::trainer
