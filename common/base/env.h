// Ports to time and randomness. Everything that decides takes one of these, so tests and the
// simulator choose what it sees; absl::Now and std::random_device live in env.cc alone.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace trainyard {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall clock, for records that people read. No decision rests on it.
  virtual absl::Time Now() = 0;
  // Time since some fixed point, counting suspension (CLOCK_BOOTTIME); for deadlines and leases.
  virtual absl::Duration Uptime() = 0;
  virtual void SleepFor(absl::Duration duration) = 0;

  // The process's real clock. Lives for ever.
  static Clock* Real();
};

// Thread-safe.
class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t Next() = 0;

  // Seeded from the operating system. Lives for ever.
  static Rng* Real();
};

// A random version 4 UUID: "0b5f3c3e-7d43-4c0f-9a83-5f4c9f0d6c11".
std::string MakeUuid(Rng& rng);

}  // namespace trainyard
