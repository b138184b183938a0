// Says what is left of hosts for a gang, and how many of its ranks that can hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/core/scheduling/gang_demand.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// Returns true if what is left of the hosts may bound the gang, and not only the free slots.
bool IsBoundByHosts(const Slots& slots, const GangDemand& gang);

// Returns how many ranks that hold `need` have room; at least 0.
int32_t RanksIn(const HostAmount& room, const HostAmount& need);

// Returns what is left of the host of a worker for the gang: without what is held, claimed, kept
// for others or reserved for others.
HostAmount RoomOn(const Slots& slots, const Offer& offer, const GangDemand& gang, int32_t worker);
// Returns that of each worker.
std::vector<HostAmount> RoomFor(const Slots& slots, const Offer& offer, const GangDemand& gang);

// Returns the most that a rank of these resources holds on any offered slot of the worker.
HostAmount NeedOnWorker(const Slots& slots, const Offer& offer, const HostAmount& resources,
                        int32_t worker);

// Counts the ranks of a gang that each host can hold. A host is looked at when somebody asks for
// it, because most gangs are placed or refused after a look at a few. The caps borrow everything,
// and hold until the slots change.
class HostCaps {
 public:
  HostCaps(const Slots& slots, const Offer& offer, const GangDemand& gang)
      : slots_(slots),
        offer_(offer),
        gang_(gang),
        needs_(slots.classes().size(), HostAmount{kUnknown, 0}),
        caps_(slots.hosts().size(), kUnknown) {}

  // If the worker has offered slots of several classes, each rank counts as the most that it holds
  // on any of them.
  int32_t Of(int32_t worker) const {
    int32_t& cap = caps_[static_cast<size_t>(worker)];
    if (cap == kUnknown) cap = Count(worker);
    return cap;
  }
  // Returns the same for a worker with offered slots of this class, faster if it is 0.
  int32_t Of(int32_t worker, size_t cls) const {
    int32_t& cap = caps_[static_cast<size_t>(worker)];
    if (cap == kUnknown) {
      cap = MayHold(cls, slots_.hosts()[static_cast<size_t>(worker)].left) ? Count(worker) : 0;
    }
    return cap;
  }
  // Returns false if no host of the workers that are indexed by this class can hold a rank.
  bool MayHold(size_t cls) const { return MayHold(cls, slots_.MostLeft(cls)); }

 private:
  static constexpr int32_t kUnknown = -1;
  bool MayHold(size_t cls, const HostAmount& left) const {
    if (slots_.classes()[cls].host.empty()) return true;
    const HostAmount& need = NeedOn(cls);
    return need.cpus <= std::max(left.cpus, 0) &&
           need.memory_bytes <= std::max<int64_t>(left.memory_bytes, 0);
  }
  const HostAmount& NeedOn(size_t cls) const {
    HostAmount& need = needs_[cls];
    if (need.cpus == kUnknown) need = slots_.NeedOn(gang_.resources, slots_.classes()[cls]);
    return need;
  }
  int32_t Count(int32_t worker) const;

  const Slots& slots_;
  const Offer& offer_;
  const GangDemand& gang_;
  mutable std::vector<HostAmount> needs_;  // by class
  mutable std::vector<int32_t> caps_;      // by worker
};

}  // namespace trainyard::core
