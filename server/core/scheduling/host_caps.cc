// Subtracts from hosts what is not for the gang.
#include "server/core/scheduling/host_caps.h"

#include <algorithm>
#include <limits>

namespace trainyard::core {
namespace {

void Deduct(HostAmount& room, const HostAmount& need, int32_t times) {
  room.cpus -= need.cpus * times;
  room.memory_bytes -= need.memory_bytes * times;
}

}  // namespace

bool IsBoundByHosts(const Slots& slots, const GangDemand& gang) {
  return slots.is_strained() || gang.is_deviceless || !gang.resources.empty();
}

int32_t RanksIn(const HostAmount& room, const HostAmount& need) {
  int64_t ranks = std::numeric_limits<int32_t>::max();
  if (need.cpus > 0) ranks = std::min<int64_t>(ranks, room.cpus / need.cpus);
  if (need.memory_bytes > 0) ranks = std::min(ranks, room.memory_bytes / need.memory_bytes);
  return static_cast<int32_t>(std::max<int64_t>(ranks, 0));
}

HostAmount RoomOn(const Slots& slots, const Offer& offer, const GangDemand& gang, int32_t worker) {
  const HostRoom& host = slots.hosts()[static_cast<size_t>(worker)];
  HostAmount room = host.left;
  if (host.kept == 0 && !host.has_reserved) return room;
  for (size_t i = host.shelves.begin; i < host.shelves.end; ++i) {
    const Shelf& shelf = slots.shelves()[i];
    const auto cls = static_cast<size_t>(shelf.cls);
    const DeviceClass& of = slots.classes()[cls];
    const bool is_lent =
        offer[cls] == Access::kKept || (gang.lent != nullptr && (*gang.lent)[cls] == Access::kKept);
    if (shelf.kept > 0 && of.keeper >= 0 && !is_lent) {
      Deduct(room, slots.NeedOn(of.keeper_resources, of), shelf.kept);
    }
    if (of.reservation.empty() || offer[cls] != Access::kNone) continue;
    if (gang.reservations != nullptr && gang.reservations->count(of.reservation) > 0) continue;
    Deduct(room, of.share, shelf.open);
  }
  return room;
}

std::vector<HostAmount> RoomFor(const Slots& slots, const Offer& offer, const GangDemand& gang) {
  std::vector<HostAmount> rooms(slots.hosts().size());
  for (size_t i = 0; i < rooms.size(); ++i) {
    rooms[i] = RoomOn(slots, offer, gang, static_cast<int32_t>(i));
  }
  return rooms;
}

HostAmount NeedOnWorker(const Slots& slots, const Offer& offer, const HostAmount& resources,
                        int32_t worker) {
  HostAmount most;
  int32_t last = -1;
  const ShelfRange& shelves = slots.hosts()[static_cast<size_t>(worker)].shelves;
  for (size_t i = shelves.begin; i < shelves.end; ++i) {
    const int32_t cls = slots.shelves()[i].cls;
    if (cls == last || offer[static_cast<size_t>(cls)] == Access::kNone) continue;
    last = cls;
    const HostAmount need = slots.NeedOn(resources, slots.classes()[static_cast<size_t>(cls)]);
    most.cpus = std::max(most.cpus, need.cpus);
    most.memory_bytes = std::max(most.memory_bytes, need.memory_bytes);
  }
  return most;
}

int32_t HostCaps::Count(int32_t worker) const {
  if (!slots_.hosts()[static_cast<size_t>(worker)].is_divided) {
    return std::numeric_limits<int32_t>::max();
  }
  return RanksIn(RoomOn(slots_, offer_, gang_, worker),
                 NeedOnWorker(slots_, offer_, gang_.resources, worker));
}

}  // namespace trainyard::core
