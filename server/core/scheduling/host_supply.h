// Counts the ranks of a gang that each worker can hold, while slots come free one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/core/scheduling/host_caps.h"
#include "server/core/scheduling/packing.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// It begins with the slots that are free. It changes no slots, so that many ways to free some can
// be compared. It borrows the slots and the offer, which is of one type unless the gang may be
// mixed.
class HostSupply {
 public:
  HostSupply(const Slots& slots, const Offer& offer, const GangDemand& gang);

  // Counts the slot as if its holder gave it back, or no longer so.
  void Add(int32_t slot) { Count(slot, 1); }
  void Remove(int32_t slot) { Count(slot, -1); }

  // Returns how many ranks the workers hold together.
  int32_t ranks() const { return ranks_; }
  // The following are for gangs that are of one host or bound by hosts.
  int32_t RanksOn(int32_t worker) const;
  int32_t workers() const { return static_cast<int32_t>(free_.size()); }
  // Returns the worker with the most processors left among those that hold a rank, or among all; -1
  // if there is none, or if hosts do not bound the gang.
  int32_t WorkerWithMostCpus(bool holds_rank) const;

  // Returns for each worker how many ranks it would hold if nobody held anything there: on the
  // slots that are fit, or on all.
  std::vector<int32_t> CapacityByWorker(bool only_fit) const;

 private:
  void Count(int32_t slot, int32_t by);

  const Slots& slots_;
  const Offer& offer_;
  const bool is_bound_;
  int32_t ranks_ = 0;
  std::vector<int32_t> free_;      // by worker, as the following ones; empty if not needed
  std::vector<HostAmount> needs_;  // of a rank
  std::vector<HostAmount> rooms_;  // empty if hosts do not bound the gang
};

}  // namespace trainyard::core
