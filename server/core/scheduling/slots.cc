// Builds the slots, shelves and classes of a pool, and counts what is free as it changes.
#include "server/core/scheduling/slots.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/check.h"

namespace trainyard::core {
namespace {

// One pass places at most this many ranks without a device on one worker. The others come with the
// next pass.
constexpr int32_t kSeatsMax = 64;

std::vector<std::string> TypesOf(const Pool& pool) {
  std::set<std::string> types;
  const std::string* last = nullptr;
  for (const PoolWorker& worker : pool) {
    for (const PoolDevice& device : worker.devices) {
      if (last == nullptr || *last != device.type) types.insert(device.type);
      last = &device.type;
    }
  }
  // Seats are of a type without a name.
  const bool has_seats = std::any_of(pool.begin(), pool.end(),
                                     [](const PoolWorker& worker) { return !worker.host.empty(); });
  if (has_seats) types.insert("");
  return {types.begin(), types.end()};
}

}  // namespace

Slots::Slots(const Pool& pool, const std::map<DeviceKey, std::string>& coming,
             std::map<JobId, HostAmount> resources, int32_t seats)
    : types_(TypesOf(pool)), classes_of_(types_.size()), resources_(std::move(resources)) {
  size_t devices = 0;
  for (const PoolWorker& worker : pool) devices += worker.devices.size() + 1;
  slots_.reserve(devices);
  hosts_.reserve(pool.size());
  for (size_t i = 0; i < pool.size(); ++i) {
    AddHost(pool[i]);
    AddWorker(static_cast<int32_t>(i), pool[i], coming);
    AddSeats(static_cast<int32_t>(i), pool[i], seats);
    hosts_.back().shelves.end = shelves_.size();
  }
  islands_ = MakePlaces(/*by_island=*/true);
  workers_ = MakePlaces(/*by_island=*/false);
  most_left_.resize(classes_.size());
}

std::vector<Slots::ClassedDevice> Slots::ClassDevices(
    const PoolWorker& worker, const std::map<DeviceKey, std::string>& coming) {
  const int32_t traits = TraitsNumber(worker.traits);
  const int32_t users = UsersNumber(worker.users);
  std::vector<ClassedDevice> entries;
  entries.reserve(worker.devices.size());
  DeviceClass cls;
  cls.host = worker.host;
  for (size_t i = 0; i < worker.devices.size(); ++i) {
    const PoolDevice& device = worker.devices[i];
    static const std::string kNone;
    const std::string* to_come = &kNone;
    if (!coming.empty()) {
      const auto found = coming.find({worker.name, device.name});
      if (found != coming.end()) to_come = &found->second;
    }
    int32_t number = entries.empty() ? -1 : entries.back().cls;
    const bool is_like_last = number >= 0 && types_[static_cast<size_t>(cls.type)] == device.type &&
                              cls.memory_bytes == device.memory_bytes &&
                              cls.reservation == device.reservation && cls.coming == *to_come &&
                              cls.bf16 == device.bf16 && cls.share == device.share;
    if (!is_like_last) {
      cls.type = TypeNumber(device.type);
      cls.memory_bytes = device.memory_bytes;
      cls.traits = traits;
      cls.users = users;
      cls.reservation = device.reservation;
      cls.coming = *to_come;
      cls.bf16 = device.bf16;
      cls.share = device.share;
      number = ClassNumber(cls);
    }
    entries.push_back({device.island, number, static_cast<int32_t>(i)});
  }
  const auto order = [](const ClassedDevice& a, const ClassedDevice& b) {
    return std::tie(a.island, a.cls, a.device) < std::tie(b.island, b.cls, b.device);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), order)) {
    std::sort(entries.begin(), entries.end(), order);
  }
  return entries;
}

void Slots::AddWorker(int32_t index, const PoolWorker& worker,
                      const std::map<DeviceKey, std::string>& coming) {
  const size_t first_shelf = shelves_.size();
  for (const ClassedDevice& entry : ClassDevices(worker, coming)) {
    const bool is_new = shelves_.size() == first_shelf || shelves_.back().island != entry.island ||
                        shelves_.back().cls != entry.cls;
    if (is_new) shelves_.push_back({index, entry.island, entry.cls, 0, 0, size(), size()});
    const PoolDevice& device = worker.devices[static_cast<size_t>(entry.device)];
    if (!device.reservation.empty()) hosts_.back().has_reserved = true;
    Slot slot;
    slot.shelf = static_cast<int32_t>(shelves_.size()) - 1;
    slot.device = entry.device;
    slot.offered = worker.takes_ranks && device.usable;
    slot.holder = device.holder;
    slot.claim = device.claim;
    if (slot.holder != JobId{}) slot.held = device.held;
    if (slot.claim != JobId{}) claims_[slot.claim].push_back(size());
    slots_.push_back(slot);
    CountHost(slot, 1);
    ++shelves_.back().end;
    DeviceClass& its_class = classes_[static_cast<size_t>(entry.cls)];
    ++its_class.total;
    if (!IsFree(size() - 1, Access::kOpen)) continue;
    ++its_class.open;
    ++shelves_.back().open;
  }
}

void Slots::AddHost(const PoolWorker& worker) {
  HostRoom host;
  host.is_divided = !worker.host.empty();
  host.shelves.begin = shelves_.size();
  host.all = worker.host;
  host.left = worker.host;
  host.device_share = worker.device_share;
  hosts_.push_back(host);
  if (!host.is_divided) return;
  HostAmount shares;
  for (const PoolDevice& device : worker.devices) shares += device.share;
  if (!shares.Fits(host.all)) is_strained_ = true;
}

// There are seats for the ranks that have or claim one, and for as many more as may be placed. How
// many of them can be taken depends on what is left of the host.
void Slots::AddSeats(int32_t index, const PoolWorker& worker, int32_t seats) {
  if (worker.host.empty()) return;
  DeviceClass cls;
  cls.type = TypeNumber("");
  cls.traits = TraitsNumber(worker.traits);
  cls.users = UsersNumber(worker.users);
  cls.host = worker.host;
  cls.share = SeatOf(worker.host).share;
  cls.is_seat = true;
  const int32_t number = ClassNumber(cls);
  Shelf shelf{index, /*island=*/-1, number, 0, 0, size(), size()};
  const auto add = [&](JobId holder, JobId claim, HostAmount held) {
    Slot slot{
        static_cast<int32_t>(shelves_.size()), -1, worker.takes_ranks, false, holder, claim, held};
    if (claim != JobId{}) claims_[claim].push_back(size());
    slots_.push_back(slot);
  };
  for (const PoolSeat& seat : worker.seats) {
    const auto& claims = worker.claimed_seats;
    const bool is_claimed = std::find(claims.begin(), claims.end(), seat.holder) != claims.end();
    add(seat.holder, is_claimed ? seat.holder : JobId{}, seat.held);
  }
  for (const JobId& job : worker.claimed_seats) {
    const bool holds = std::any_of(worker.seats.begin(), worker.seats.end(),
                                   [&job](const PoolSeat& seat) { return seat.holder == job; });
    if (!holds) add(JobId{}, job, {});
  }
  const int32_t free = std::clamp(std::min(seats, worker.host.cpus), 1, kSeatsMax);
  for (int32_t i = 0; i < free; ++i) add(JobId{}, JobId{}, {});
  shelf.end = size();
  shelf.open = worker.takes_ranks ? free : 0;
  shelves_.push_back(shelf);
  classes_[static_cast<size_t>(number)].total += shelf.end - shelf.begin;
  classes_[static_cast<size_t>(number)].open += shelf.open;
  for (int32_t i = shelf.begin; i < shelf.end; ++i) CountHost(slot(i), 1);
}

void Slots::CountHost(const Slot& slot, int32_t by) {
  const Shelf& shelf = shelves_[static_cast<size_t>(slot.shelf)];
  HostRoom& host = hosts_[static_cast<size_t>(shelf.worker)];
  if (!host.is_divided || (slot.holder == JobId{} && slot.claim == JobId{})) return;
  const DeviceClass& cls = classes_[static_cast<size_t>(shelf.cls)];
  const HostAmount held = slot.holder == JobId{} ? HostAmount{} : slot.held;
  const auto take = [&host, by](const HostAmount& more) {
    host.left.cpus -= by * more.cpus;
    host.left.memory_bytes -= by * more.memory_bytes;
  };
  take(held);
  host.held.cpus += by * held.cpus;
  host.held.memory_bytes += by * held.memory_bytes;
  is_strained_ = is_strained_ || cls.is_seat || !held.Fits(cls.share);
  if (slot.claim == JobId{} || slot.claim == slot.holder) return;
  const auto found = resources_.find(slot.claim);
  const HostAmount need = NeedOn(found == resources_.end() ? HostAmount{} : found->second, cls);
  is_strained_ = is_strained_ || !need.Fits(cls.share);
  take({std::max(need.cpus - held.cpus, 0),
        std::max<int64_t>(need.memory_bytes - held.memory_bytes, 0)});
}

void Slots::SetResources(JobId job, const HostAmount& resources) {
  if (!resources.empty()) resources_[job] = resources;
}

HostAmount Slots::NeedOnAll(const std::vector<int32_t>& slots, const HostAmount& resources) const {
  HostAmount sum;
  for (const int32_t slot : slots) sum += NeedOn(resources, ClassOf(slot));
  return sum;
}

int64_t Slots::MilliOn(const std::vector<int32_t>& slots, const HostAmount& resources) const {
  int64_t milli = 0;
  for (const int32_t slot : slots) {
    const DeviceClass& cls = ClassOf(slot);
    const HostRoom& host = hosts_[static_cast<size_t>(ShelfOf(slot).worker)];
    milli += cls.is_seat ? MilliDevices(host.device_share, NeedOn(resources, cls)) : kWholeDevice;
  }
  return milli;
}

HostAmount Slots::MostOn(const Offer& offer, const HostAmount& resources) const {
  HostAmount most;
  for (size_t i = 0; i < offer.size(); ++i) {
    if (offer[i] == Access::kNone) continue;
    const HostAmount need = NeedOn(resources, classes_[i]);
    most.cpus = std::max(most.cpus, need.cpus);
    most.memory_bytes = std::max(most.memory_bytes, need.memory_bytes);
  }
  return most;
}

bool Slots::HostsFit(const std::vector<int32_t>& slots, const HostAmount& resources) const {
  std::map<int32_t, HostAmount> needs;
  for (const int32_t slot : slots) {
    needs[ShelfOf(slot).worker] += NeedOn(resources, ClassOf(slot));
  }
  return std::all_of(needs.begin(), needs.end(), [this](const auto& need) {
    const HostRoom& host = hosts_[static_cast<size_t>(need.first)];
    HostAmount room = host.all;
    room -= host.held;
    return !host.is_divided || need.second.Fits(room);
  });
}

const HostAmount& Slots::MostLeft(size_t cls) const {
  std::optional<HostAmount>& most = most_left_[cls];
  if (most.has_value()) return *most;
  most.emplace();
  // A worker of several classes of one type is indexed by none of them, but its islands may be.
  const Places::Indexed& of = islands_.by_class[cls];
  for (int32_t free = 1; free <= of.free.largest(); ++free) {
    for (int32_t i = of.free.Find(free, 0); i >= 0; i = of.free.Find(free, i + 1)) {
      const Shelf& shelf = shelves_[of.ranges[static_cast<size_t>(i)].begin];
      const HostAmount& left = hosts_[static_cast<size_t>(shelf.worker)].left;
      most->cpus = std::max(most->cpus, left.cpus);
      most->memory_bytes = std::max(most->memory_bytes, left.memory_bytes);
    }
  }
  return *most;
}

int32_t Slots::TypeNumber(const std::string& type) const {
  return static_cast<int32_t>(std::lower_bound(types_.begin(), types_.end(), type) -
                              types_.begin());
}

int32_t Slots::TraitsNumber(const WorkerTraits& traits) {
  const auto [found, is_new] =
      traits_numbers_.try_emplace(traits, static_cast<int32_t>(traits_.size()));
  if (is_new) traits_.push_back(traits);
  return found->second;
}

int32_t Slots::UsersNumber(const WorkerUsers& users) {
  const auto found = user_numbers_.try_emplace(users, static_cast<int32_t>(user_sets_.size()));
  if (found.second) user_sets_.push_back(users);
  return found.first->second;
}

int32_t Slots::ClassNumber(const DeviceClass& cls) {
  const auto [found, is_new] = class_numbers_.try_emplace(
      {cls.type, cls.memory_bytes, cls.traits, cls.users, cls.reservation, cls.coming, cls.bf16,
       cls.host, cls.share, cls.is_seat},
      static_cast<int32_t>(classes_.size()));
  if (is_new) {
    classes_.push_back(cls);
    classes_of_[static_cast<size_t>(cls.type)].push_back(found->second);
  }
  return found->second;
}

Reach Slots::ReachOf(const Demand& demand, const std::set<std::string>& reservations,
                     const std::string& reservation, const std::string& user) const {
  Reach reach;
  reach.ever.assign(classes_.size(), Access::kNone);
  reach.now = reach.ever;
  reach.clean = reach.ever;
  for (size_t i = 0; i < classes_.size(); ++i) {
    const DeviceClass& cls = classes_[i];
    if (MismatchOf(demand, cls) != Mismatch::kNone || !UsersOf(cls).Allow(user)) continue;
    if (!reservation.empty() && cls.reservation != reservation && cls.coming != reservation) {
      continue;
    }
    reach.ever[i] = Access::kOpen;
    if (!reservation.empty() && cls.reservation != reservation) continue;
    if (!cls.reservation.empty() && reservations.count(cls.reservation) == 0) continue;
    reach.now[i] = Access::kOpen;
    if (cls.coming.empty() || reservations.count(cls.coming) > 0) {
      reach.clean[i] = Access::kOpen;
    } else {
      reach.spares = true;
    }
  }
  return reach;
}

// Collects the items of an index in the order of their shelves.
struct Slots::IndexItems {
  std::vector<ShelfRange> ranges;
  std::vector<int32_t> open;
  int32_t largest = 0;  // slots of an item

  // Returns the number of the item.
  int32_t Add(const ShelfRange& range, int32_t slots) {
    ranges.push_back(range);
    open.push_back(0);
    largest = std::max(largest, slots);
    return static_cast<int32_t>(ranges.size()) - 1;
  }
  // Nothing is kept for any job yet, so all free slots are open.
  Places::Indexed Index() && {
    return {std::move(ranges), FreeIndex(open, largest), FreeIndex(open, largest)};
  }
};

Places Slots::MakePlaces(bool by_island) const {
  Places places;
  places.shared.resize(types_.size());
  places.item_of.assign(shelves_.size(), -1);
  places.item_in_type.assign(shelves_.size(), -1);
  std::vector<IndexItems> of_class(classes_.size());
  std::vector<IndexItems> of_type(types_.size());
  const auto type_of = [this](const Shelf& shelf) {
    return classes_[static_cast<size_t>(shelf.cls)].type;
  };
  for (size_t begin = 0, end = 0; begin < shelves_.size(); begin = end) {
    const Shelf& first = shelves_[begin];
    while (end < shelves_.size() && shelves_[end].worker == first.worker &&
           (!by_island || shelves_[end].island == first.island)) {
      ++end;
    }
    for (size_t i = begin; i < end; ++i) {
      const Shelf& shelf = shelves_[i];
      const auto type = static_cast<size_t>(type_of(shelf));
      bool is_first_of_type = true;
      bool is_alone = true;
      int32_t size = 0;
      for (size_t j = begin; j < end; ++j) {
        if (type_of(shelves_[j]) != type_of(shelf)) continue;
        if (j < i) is_first_of_type = false;
        if (shelves_[j].cls != shelf.cls) is_alone = false;
        size += shelves_[j].end - shelves_[j].begin;
      }
      const ShelfRange range{begin, end};
      if (!is_alone) {
        if (is_first_of_type) places.shared[type].push_back(range);
        continue;
      }
      const auto put = [&](IndexItems& items, int32_t& item) {
        item = is_first_of_type ? items.Add(range, size)
                                : static_cast<int32_t>(items.ranges.size()) - 1;
        items.open[static_cast<size_t>(item)] += shelf.open;
      };
      put(of_class[static_cast<size_t>(shelf.cls)], places.item_of[i]);
      if (classes_of_[type].size() > 1) put(of_type[type], places.item_in_type[i]);
    }
  }
  for (IndexItems& items : of_class) places.by_class.push_back(std::move(items).Index());
  for (IndexItems& items : of_type) places.by_type.push_back(std::move(items).Index());
  return places;
}

void Slots::Count(const Slot& slot, int32_t by) {
  if (!slot.offered || slot.holder != JobId{} || slot.claim != JobId{}) return;
  const auto at = static_cast<size_t>(slot.shelf);
  Shelf& shelf = shelves_[at];
  const auto cls = static_cast<size_t>(shelf.cls);
  (slot.kept ? shelf.kept : shelf.open) += by;
  (slot.kept ? classes_[cls].kept : classes_[cls].open) += by;
  if (slot.kept) hosts_[static_cast<size_t>(shelf.worker)].kept += by;
  const auto change = [&](Places::Indexed& indexed, int32_t item) {
    if (item < 0) return;
    indexed.free.Change(item, by);
    if (!slot.kept) indexed.open.Change(item, by);
  };
  for (Places* places : {&islands_, &workers_}) {
    change(places->by_class[cls], places->item_of[at]);
    change(places->by_type[static_cast<size_t>(classes_[cls].type)], places->item_in_type[at]);
  }
}

template <typename Set>
void Slots::Change(int32_t slot, Set set) {
  Slot& it = slots_[static_cast<size_t>(slot)];
  Count(it, -1);
  CountHost(it, -1);
  set(it);
  CountHost(it, 1);
  Count(it, 1);
  const ShelfRange& on_host = hosts_[static_cast<size_t>(ShelfOf(slot).worker)].shelves;
  for (size_t i = on_host.begin; i < on_host.end; ++i) {
    most_left_[static_cast<size_t>(shelves_[i].cls)].reset();
  }
}

void Slots::SetHolder(int32_t slot, JobId job, HostAmount held) {
  Change(slot, [&](Slot& it) {
    it.holder = job;
    it.held = held;
  });
}

void Slots::SetClaim(int32_t slot, JobId job) {
  Change(slot, [&](Slot& it) { it.claim = job; });
}

void Slots::SetKept(int32_t slot, bool kept) {
  Slot& it = slots_[static_cast<size_t>(slot)];
  Count(it, -1);
  it.kept = kept;
  Count(it, 1);
}

std::map<JobId, std::vector<int32_t>> Slots::Holders() const {
  std::vector<std::pair<JobId, int32_t>> held;
  for (int32_t i = 0; i < size(); ++i) {
    if (slot(i).holder != JobId{}) held.emplace_back(slot(i).holder, i);
  }
  std::sort(held.begin(), held.end());
  std::map<JobId, std::vector<int32_t>> holders;
  for (size_t begin = 0, end = 0; begin < held.size(); begin = end) {
    while (end < held.size() && held[end].first == held[begin].first) ++end;
    std::vector<int32_t> slots;
    slots.reserve(end - begin);
    for (size_t i = begin; i < end; ++i) slots.push_back(held[i].second);
    holders.emplace_hint(holders.end(), held[begin].first, std::move(slots));
  }
  return holders;
}

DeviceKey Slots::KeyOf(const Pool& pool, int32_t slot) const {
  const PoolWorker& worker = pool[static_cast<size_t>(ShelfOf(slot).worker)];
  if (ClassOf(slot).is_seat) {
    const Slot& seat = slots_[static_cast<size_t>(slot)];
    return {worker.name, SeatName(seat.holder != JobId{} ? seat.holder : seat.claim)};
  }
  return {worker.name,
          worker.devices[static_cast<size_t>(slots_[static_cast<size_t>(slot)].device)].name};
}

}  // namespace trainyard::core
