// Represents the pool as numbers, with which a pass calculates. A slot is a device. Slots that
// agree in everything form a class, and those of a class on one NVLink island of a worker form a
// shelf. Free slots are counted by shelf and by class, so that most questions are answered without
// looking at slots.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  HostAmount host;          // of its worker; empty if it is not divided
  HostAmount share;         // what a rank holds of the host by default
  bool is_seat = false;     // places for ranks without a device
  int32_t total = 0;        // all slots, including those that are held or unfit
  int32_t open = 0;         // free for anybody who may use the class
  int32_t kept = 0;         // free, but kept for a waiting job (see `keeper`)
  // The job for which they are kept, as an index of the caller; -1 if there is none.
  int32_t keeper = -1;
  HostAmount keeper_resources = {};  // as the demand of that job has them
};

// A device, or a seat.
struct Slot {
  int32_t shelf = 0;
  int32_t device = 0;   // in its worker; not for seats
  bool offered = true;  // true if the worker takes ranks and the device is fit
  bool kept = false;    // true if it is kept for the keeper of its class
  JobId holder;
  JobId claim;
  HostAmount held = {};  // what the holder has of the host
};

// A host whose processors and memory are divided.
struct HostRoom {
  bool is_divided = false;
  HostAmount all;
  HostAmount device_share;  // what a device stands for
  HostAmount held;
  HostAmount left;            // without what is held and what the jobs of claims will hold
  int32_t kept = 0;           // its free slots that are kept for a waiting job
  bool has_reserved = false;  // true if a reservation in force has some of its devices
  ShelfRange shelves;         // the shelves of the worker
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
  // Makes the slots of a pool. `coming` holds the reservations to come, by device; `resources`
  // those of jobs with claims, where they are not the default; `seats` says how many ranks without
  // a device may be placed on a worker at most. It borrows nothing.
  Slots(const Pool& pool, const std::map<DeviceKey, std::string>& coming,
        std::map<JobId, HostAmount> resources = {}, int32_t seats = 1);

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
    return FirstMismatch(demand, traits_[static_cast<size_t>(cls.traits)], TraitsOf(cls));
  }
  DeviceTraits TraitsOf(const DeviceClass& cls) const {
    return {types_[static_cast<size_t>(cls.type)],
            cls.memory_bytes,
            cls.bf16,
            cls.host,
            cls.share,
            cls.is_seat};
  }
  // Returns what a rank of these resources holds of the host on a slot of this class.
  HostAmount NeedOn(const HostAmount& resources, const DeviceClass& cls) const {
    return cls.host.empty() ? HostAmount{} : HostNeedOn(resources, TraitsOf(cls));
  }
  // Returns what ranks of these resources on these slots count for fair share (MilliDevices).
  int64_t MilliOn(const std::vector<int32_t>& slots, const HostAmount& resources) const;
  // Returns what ranks of these resources hold on all of these slots together.
  HostAmount NeedOnAll(const std::vector<int32_t>& slots, const HostAmount& resources) const;
  // Returns the most that one such rank holds on any slot of the offer.
  HostAmount MostOn(const Offer& offer, const HostAmount& resources) const;
  const std::vector<HostRoom>& hosts() const { return hosts_; }  // by worker
  const std::vector<int32_t>& ClassesOf(int32_t type) const {
    return classes_of_[static_cast<size_t>(type)];
  }
  // Returns no less than what is left of any host with free slots of a class whose hosts are
  // divided, as far as their islands are indexed by this class.
  const HostAmount& MostLeft(size_t cls) const;
  // Returns true if a host may have less left than its free devices hold by default.
  bool is_strained() const { return is_strained_; }
  // Returns true if ranks of these resources fit on all of these slots beside what is held,
  // whatever is claimed.
  bool HostsFit(const std::vector<int32_t>& slots, const HostAmount& resources) const;

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

  // The holder gets `held` of the host.
  void SetHolder(int32_t slot, JobId job, HostAmount held = {});
  // Says what a rank of the job asks for, before slots are claimed for it.
  void SetResources(JobId job, const HostAmount& resources);
  void SetClaim(int32_t slot, JobId job);
  void SetKept(int32_t slot, bool kept);
  void SetKeeper(int32_t cls, int32_t keeper, const HostAmount& resources) {
    classes_[static_cast<size_t>(cls)].keeper = keeper;
    classes_[static_cast<size_t>(cls)].keeper_resources = resources;
  }

  // Returns the slots that were claimed in the pool, by job, whatever has been set since.
  const std::map<JobId, std::vector<int32_t>>& claims() const { return claims_; }
  std::map<JobId, std::vector<int32_t>> Holders() const;  // held slots, by job

  // A seat stands under the name of the job that holds it or, if it is free, claims it.
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
  void AddHost(const PoolWorker& worker);
  void AddSeats(int32_t index, const PoolWorker& worker, int32_t seats);
  // Changes what is held and claimed of its host by that of the slot.
  void CountHost(const Slot& slot, int32_t by);
  // Changes who holds or claims the slot.
  template <typename Set>
  void Change(int32_t slot, Set set);
  struct IndexItems;
  Places MakePlaces(bool by_island) const;
  void Count(const Slot& slot, int32_t by);  // changes the counts by the slot, if it is free

  std::vector<std::string> types_;
  std::vector<WorkerTraits> traits_;
  std::map<WorkerTraits, int32_t> traits_numbers_;
  std::vector<WorkerUsers> user_sets_;
  std::map<WorkerUsers, int32_t> user_numbers_;
  std::vector<DeviceClass> classes_;
  std::vector<std::vector<int32_t>> classes_of_;  // by type
  std::map<std::tuple<int32_t, int64_t, int32_t, int32_t, std::string, std::string, bool,
                      HostAmount, HostAmount, bool>,
           int32_t>
      class_numbers_;
  std::vector<HostRoom> hosts_;
  std::map<JobId, HostAmount> resources_;  // where they are not the default
  bool is_strained_ = false;
  std::vector<Slot> slots_;
  std::vector<Shelf> shelves_;  // by worker, island, class
  Places islands_;
  Places workers_;
  std::map<JobId, std::vector<int32_t>> claims_;
  // By class; unset if it is not known. It is found out when somebody asks for it.
  mutable std::vector<std::optional<HostAmount>> most_left_;
};

}  // namespace trainyard::core
