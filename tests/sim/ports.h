// The ports through which the worker's cores see the simulated world.
#pragma once

#include "common/base/check.h"
#include "common/base/env.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

// The clocks of a machine.
class SimClock : public Clock {
 public:
  SimClock(World& world, const Machine& machine) : world_(world), machine_(machine) {}

  absl::Time Now() override { return absl::FromUnixMicros(machine_.clock.Wall(world_.now())); }
  absl::Duration Uptime() override { return machine_.Uptime(); }
  void SleepFor(absl::Duration) override { TY_CHECK(false); }

 private:
  World& world_;
  const Machine& machine_;
};

class SimRng : public Rng {
 public:
  explicit SimRng(World& world) : world_(world) {}

  uint64_t Next() override { return world_.random().Next(); }

 private:
  World& world_;
};

}  // namespace trainyard::sim
