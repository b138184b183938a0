// Reads the real clock and the real source of randomness. No other file may: tests/tidy refuses it.
#include "common/base/env.h"

#include <ctime>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace trainyard {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  absl::Duration Uptime() override {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::DurationFromTimespec(now);
  }
  void SleepFor(absl::Duration duration) override { absl::SleepFor(duration); }
};

class RealRng : public Rng {
 public:
  uint64_t Next() override {
    absl::MutexLock lock(&mutex_);
    return engine_();
  }

 private:
  absl::Mutex mutex_;
  std::mt19937_64 engine_ ABSL_GUARDED_BY(mutex_){[] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) | device();
  }()};
};

}  // namespace

Clock* Clock::Real() {
  static auto* clock = new RealClock;
  return clock;
}

Rng* Rng::Real() {
  static auto* rng = new RealRng;
  return rng;
}

std::string MakeUuid(Rng& rng) {
  const uint64_t high = (rng.Next() & ~uint64_t{0xf000}) | 0x4000;
  const uint64_t low = (rng.Next() & ~(uint64_t{3} << 62)) | (uint64_t{2} << 62);
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff,
                         high & 0xffff, low >> 48, low & 0xffffffffffff);
}

}  // namespace trainyard
