// Defines ports to time and randomness. Code that decides takes one of these, so tests and the
// simulator choose what it sees. Only env.cc uses absl::Now and std::random_device.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace trainyard {

// Tells the time. Implementations are thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the wall clock, for records that people read. No decision depends on it.
  virtual absl::Time Now() = 0;
  // Returns the time since some fixed point, including time in which the machine was suspended
  // (CLOCK_BOOTTIME). It is for deadlines and leases.
  virtual absl::Duration Uptime() = 0;
  virtual void SleepFor(absl::Duration duration) = 0;

  // Returns the real clock of the process, which lives forever.
  static Clock* Real();
};

// Gives random numbers. Implementations are thread-safe.
class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t Next() = 0;

  // Returns a generator that is seeded from the operating system and lives forever.
  static Rng* Real();
};

// Returns a random version 4 UUID: "0b5f3c3e-7d43-4c0f-9a83-5f4c9f0d6c11".
std::string MakeUuid(Rng& rng);

}  // namespace trainyard
