// Adds up free slots and what is left of their hosts.
#include "server/core/scheduling/host_supply.h"

#include <algorithm>

namespace trainyard::core {

HostSupply::HostSupply(const Slots& slots, const Offer& offer, const GangDemand& gang)
    : slots_(slots), offer_(offer), is_bound_(IsBoundByHosts(slots, gang)) {
  // Most gangs are bound by no host, and only their number is asked for.
  if (!is_bound_ && !gang.one_host) {
    for (size_t i = 0; i < offer.size(); ++i) {
      if (offer[i] != Access::kNone) ranks_ += slots.classes()[i].open;
    }
    return;
  }
  free_.resize(slots.hosts().size(), 0);
  needs_.resize(slots.hosts().size());
  if (is_bound_) rooms_ = RoomFor(slots, offer, gang);
  for (const Shelf& shelf : slots.shelves()) {
    const auto cls = static_cast<size_t>(shelf.cls);
    if (offer[cls] == Access::kNone) continue;
    const auto worker = static_cast<size_t>(shelf.worker);
    const HostAmount need = slots.NeedOn(gang.resources, slots.classes()[cls]);
    needs_[worker].cpus = std::max(needs_[worker].cpus, need.cpus);
    needs_[worker].memory_bytes = std::max(needs_[worker].memory_bytes, need.memory_bytes);
    free_[worker] += shelf.open;
  }
  for (int32_t worker = 0; worker < workers(); ++worker) ranks_ += RanksOn(worker);
}

void HostSupply::Count(int32_t slot, int32_t by) {
  const Slot& it = slots_.slot(slot);
  const Shelf& shelf = slots_.ShelfOf(slot);
  const auto cls = static_cast<size_t>(shelf.cls);
  const auto worker = static_cast<size_t>(shelf.worker);
  const bool is_wanted =
      it.offered && !it.kept && it.claim == JobId{} && offer_[cls] != Access::kNone;
  if (!is_bound_) {
    if (!is_wanted) return;
    ranks_ += by;
    if (!free_.empty()) free_[worker] += by;
    return;
  }
  ranks_ -= RanksOn(shelf.worker);
  if (is_wanted) free_[worker] += by;
  if (it.claim == JobId{}) {
    HostAmount room = it.held;
    const DeviceClass& of = slots_.classes()[cls];
    // The job for which the slot is kept holds its part of the host, too.
    if (it.offered && it.kept && of.keeper >= 0) room -= slots_.NeedOn(of.keeper_resources, of);
    rooms_[worker].cpus += by * room.cpus;
    rooms_[worker].memory_bytes += by * room.memory_bytes;
  }
  ranks_ += RanksOn(shelf.worker);
}

int32_t HostSupply::RanksOn(int32_t worker) const {
  const auto i = static_cast<size_t>(worker);
  if (!is_bound_ || !slots_.hosts()[i].is_divided) return free_[i];
  return std::min(free_[i], RanksIn(rooms_[i], needs_[i]));
}

int32_t HostSupply::WorkerWithMostCpus(bool holds_rank) const {
  int32_t best = -1;
  for (int32_t worker = 0; worker < static_cast<int32_t>(rooms_.size()); ++worker) {
    const auto i = static_cast<size_t>(worker);
    if (needs_[i].empty() || (holds_rank && RanksOn(worker) == 0)) continue;
    if (best < 0 || rooms_[static_cast<size_t>(best)].cpus < rooms_[i].cpus) best = worker;
  }
  return best;
}

std::vector<int32_t> HostSupply::CapacityByWorker(bool only_fit) const {
  std::vector<int32_t> capacity(free_.size(), 0);
  for (const Shelf& shelf : slots_.shelves()) {
    if (offer_[static_cast<size_t>(shelf.cls)] == Access::kNone) continue;
    int32_t& count = capacity[static_cast<size_t>(shelf.worker)];
    if (!only_fit) count += shelf.end - shelf.begin;
    for (int32_t slot = shelf.begin; only_fit && slot < shelf.end; ++slot) {
      if (slots_.slot(slot).offered) ++count;
    }
  }
  for (size_t i = 0; i < capacity.size(); ++i) {
    const HostRoom& host = slots_.hosts()[i];
    if (host.is_divided) capacity[i] = std::min(capacity[i], RanksIn(host.all, needs_[i]));
  }
  return capacity;
}

}  // namespace trainyard::core
