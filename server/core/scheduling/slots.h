// Represents the pool as numbers, with which a pass calculates. A slot is a device. Slots that
// agree in everything form a class, and those of a class on one NVLink island of a worker form a
// shelf. Free slots are counted by shelf and by class, so that most questions are answered without
// looking at slots.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/core/scheduling/eligibility.h"
#include "server/core/scheduling/free_index.h"
#include "server/core/scheduling/job_queue.h"
#include "server/core/scheduling/placement.h"

namespace trainyard::core {

struct DeviceClass {
  int32_t type = 0;
  int64_t memory_bytes = 0;
  int32_t traits = 0;       // of its worker
  int32_t users = 0;        // of its worker
  std::string reservation;  // in force
  std::string coming;       // a reservation to come
  bool bf16 = false;        // computes in bf16
  int32_t total = 0;        // all slots, including those that are held or unfit
  int32_t open = 0;         // free for anybody who may use the class
  int32_t kept = 0;         // free, but kept for a waiting job (see `keeper`)
  // The job for which they are kept, as an index of the caller; -1 if there is none.
  int32_t keeper = -1;
};

struct Slot {
  int32_t shelf = 0;
  int32_t device = 0;   // in its worker
  bool offered = true;  // true if the worker takes ranks and the device is fit
  bool kept = false;    // true if it is kept for the keeper of its class
  JobId holder;
  JobId claim;
};

struct Shelf {
  int32_t worker = 0;
  int32_t island = 0;
  int32_t cls = 0;
  int32_t open = 0;
  int32_t kept = 0;
  int32_t begin = 0;  // the first of its slots
  int32_t end = 0;
};

// Says which slots of a class a job may take: none, the open ones, or the kept ones too.
enum class Access : char { kNone, kOpen, kKept };
using Offer = absl::InlinedVector<Access, 48>;  // by class

// The classes that suit a shape. Each offer has kNone or kOpen for a class.
struct Reach {
  Offer ever;           // judged by what the devices are
  Offer now;            // those of `ever` that the reservations in force allow
  Offer clean;          // those of `now` that are not in somebody else's coming reservation
  bool spares = false;  // true if `clean` is smaller than `now`
};

class Slots {
 public:
  // Makes the slots of a pool. `coming` holds the reservations to come, by device. It borrows
  // nothing.
  Slots(const Pool& pool, const std::map<DeviceKey, std::string>& coming);

  const std::vector<DeviceClass>& classes() const { return classes_; }
  const std::vector<Shelf>& shelves() const { return shelves_; }
  const Places& islands() const { return islands_; }
  const Places& workers() const { return workers_; }
  const Slot& slot(int32_t index) const { return slots_[static_cast<size_t>(index)]; }
  int32_t size() const { return static_cast<int32_t>(slots_.size()); }
  const Shelf& ShelfOf(int32_t slot) const {
    return shelves_[static_cast<size_t>(slots_[static_cast<size_t>(slot)].shelf)];
  }
  const DeviceClass& ClassOf(int32_t slot) const {
    return classes_[static_cast<size_t>(ShelfOf(slot).cls)];
  }
  const std::vector<std::string>& types() const { return types_; }  // sorted
  // Returns what `demand` asks for and the devices of this class do not have.
  Mismatch MismatchOf(const Demand& demand, const DeviceClass& cls) const {
    return FirstMismatch(demand, traits_[static_cast<size_t>(cls.traits)],
                         {types_[static_cast<size_t>(cls.type)], cls.memory_bytes, cls.bf16});
  }

  const WorkerUsers& UsersOf(const DeviceClass& cls) const {
    return user_sets_[static_cast<size_t>(cls.users)];
  }

  Reach ReachOf(const Demand& demand, const std::set<std::string>& reservations,
                const std::string& reservation, const std::string& user) const;

  bool IsFree(int32_t slot, Access access) const {
    const Slot& it = slots_[static_cast<size_t>(slot)];
    return it.offered && it.holder == JobId{} && it.claim == JobId{} &&
           (!it.kept || access == Access::kKept);
  }

  void SetHolder(int32_t slot, JobId job);
  void SetClaim(int32_t slot, JobId job);
  void SetKept(int32_t slot, bool kept);
  void SetKeeper(int32_t cls, int32_t keeper) {
    classes_[static_cast<size_t>(cls)].keeper = keeper;
  }

  // Returns the slots that were claimed in the pool, by job, whatever has been set since.
  const std::map<JobId, std::vector<int32_t>>& claims() const { return claims_; }
  std::map<JobId, std::vector<int32_t>> Holders() const;  // held slots, by job

  DeviceKey KeyOf(const Pool& pool, int32_t slot) const;

 private:
  int32_t TypeNumber(const std::string& type) const;
  int32_t TraitsNumber(const WorkerTraits& traits);
  int32_t UsersNumber(const WorkerUsers& users);
  int32_t ClassNumber(const DeviceClass& cls);
  // A device of a worker with its class.
  struct ClassedDevice {
    int32_t island;
    int32_t cls;
    int32_t device;
  };
  // The devices in the order of the shelves.
  std::vector<ClassedDevice> ClassDevices(const PoolWorker& worker,
                                          const std::map<DeviceKey, std::string>& coming);
  void AddWorker(int32_t index, const PoolWorker& worker,
                 const std::map<DeviceKey, std::string>& coming);
  Places MakePlaces(bool by_island) const;
  void Count(const Slot& slot, int32_t by);  // changes the counts by the slot, if it is free

  std::vector<std::string> types_;
  std::vector<WorkerTraits> traits_;
  std::map<WorkerTraits, int32_t> traits_numbers_;
  std::vector<WorkerUsers> user_sets_;
  std::map<WorkerUsers, int32_t> user_numbers_;
  std::vector<DeviceClass> classes_;
  std::map<std::tuple<int32_t, int64_t, int32_t, int32_t, std::string, std::string, bool>, int32_t>
      class_numbers_;
  std::vector<Slot> slots_;
  std::vector<Shelf> shelves_;  // by worker, island, class
  Places islands_;
  Places workers_;
  std::map<JobId, std::vector<int32_t>> claims_;
};

}  // namespace trainyard::core
