// Makes one pass: it serves first the jobs whose claimed devices are free, then the queue in its
// order, then growth.
#include "server/core/scheduling/pass.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/base/check.h"
#include "server/core/scheduling/elastic.h"
#include "server/core/scheduling/host_caps.h"

namespace trainyard::core {
namespace {

// A pass searches victims for at most this many jobs, because no other search costs more.
constexpr int kNominationTriesMax = 16;

std::map<DeviceKey, std::string> ComingReservations(const PassInput& input) {
  std::map<DeviceKey, std::string> coming;
  std::map<DeviceKey, int64_t> starts;
  for (const auto& [name, reservation] : input.reservations) {
    if (reservation.start_us <= input.now.wall_us) continue;
    for (const DeviceKey& device : reservation.devices) {
      const auto [start, is_new] = starts.try_emplace(device, reservation.start_us);
      if (!is_new && start->second <= reservation.start_us) continue;
      start->second = reservation.start_us;
      coming[device] = name;
    }
  }
  return coming;
}

// Returns what the ranks of jobs with claims ask for, where that is not the default.
std::map<JobId, HostAmount> ClaimedResources(const PassInput& input) {
  std::map<JobId, HostAmount> resources;
  const auto add = [&](JobId id) {
    if (id == JobId{}) return;
    const QueuedJob* queued = input.queue.Find(id);
    const auto running = input.running.find(id);
    if (queued != nullptr && !queued->demand.resources.empty()) {
      resources[id] = queued->demand.resources;
    } else if (queued == nullptr && running != input.running.end() &&
               !running->second.demand.resources.empty()) {
      resources[id] = running->second.demand.resources;
    }
  };
  for (const PoolWorker& worker : input.pool) {
    for (const PoolDevice& device : worker.devices) add(device.claim);
    for (const JobId& job : worker.claimed_seats) add(job);
  }
  return resources;
}

class Pass {
 public:
  Pass(const PassInput& input, PassState& state)
      : input_(input), state_(state), wanted_(state.slots.classes().size(), false) {}

  Plan Run() {
    ServeClaims();
    WalkQueue(input_.queue, state_.share, state_.rules,
              [this](const QueuedJob& job) { return Consider(job); });
    while (!nominated_.empty()) StartFirstNominated();
    if (state_.options.elastic && state_.is_complete) Grow();
    FillFront();
    return std::move(plan_);
  }

 private:
  // Jobs for which devices are claimed start as soon as all of these are free, wherever they stand
  // in the queue, because they were chosen by an earlier pass.
  void ServeClaims() {
    std::vector<const QueuedJob*> jobs;
    for (const auto& [id, slots] : state_.slots.claims()) {
      const QueuedJob* job = input_.queue.Find(id);
      if (job != nullptr && job->holds.empty()) jobs.push_back(job);
    }
    std::stable_sort(jobs.begin(), jobs.end(), [](const QueuedJob* a, const QueuedJob* b) {
      return a->priority > b->priority;
    });
    for (const QueuedJob* job : jobs) ServeClaim(*job);
  }

  void ServeClaim(const QueuedJob& job) {
    const std::vector<int32_t> claimed = state_.slots.claims().at(job.id);
    const Reach& reach = state_.ReachOf(job);
    std::vector<int32_t> fit;
    bool are_free = true;
    std::set<int32_t> types;
    std::set<int32_t> workers;
    for (const int32_t slot : claimed) {
      const Slot& it = state_.slots.slot(slot);
      const auto cls = static_cast<size_t>(state_.slots.ShelfOf(slot).cls);
      if (!it.offered || reach.now[cls] == Access::kNone) continue;
      fit.push_back(slot);
      types.insert(state_.slots.classes()[cls].type);
      workers.insert(state_.slots.ShelfOf(slot).worker);
      are_free = are_free && it.holder == JobId{};
    }
    // A job that it preempts may give it processors and memory, and no slot.
    const bool waits_for_host = are_free && !state_.slots.HostsFit(fit, job.demand.resources);
    are_free = are_free && !waits_for_host;
    const GangDemand gang = state_.GangOf(job.demand, state_.RoomOf(job));
    const bool is_whole = static_cast<int32_t>(fit.size()) >= state_.GangOf(job.demand, 0).least &&
                          (job.demand.mixed || types.size() == 1) &&
                          (!gang.one_host || workers.size() == 1);
    served_.insert(job.id);
    if (!is_whole) {  // one of its devices has failed, so that it needs others
      if (gang.most < gang.least) return;
      for (const int32_t slot : claimed) state_.slots.SetClaim(slot, JobId{});
      TryStart(job, reach, gang);
      for (const int32_t slot : claimed) {
        if (state_.slots.slot(slot).claim == JobId{}) state_.slots.SetClaim(slot, job.id);
      }
      return;
    }
    if (!are_free && MayStartElsewhere(job, fit)) nominated_.push_back(&job);
    if (!are_free || gang.most < gang.least) return;
    std::sort(fit.begin(), fit.end());
    if (fit.size() > static_cast<size_t>(gang.most)) fit.resize(static_cast<size_t>(gang.most));
    Start(job, fit, JobId{});
  }

  // Returns true if a nominated job may start on other devices than those that are claimed for it.
  // It may not once a victim has been stopped for it: the other devices follow within the time for
  // a checkpoint and a stop, and replays show that waiting for them uses the pool better. A head
  // whose guests leave waits for them, since it has kept these devices all along.
  bool MayStartElsewhere(const QueuedJob& job, const std::vector<int32_t>& claimed) const {
    if (job.has_room_made) return false;
    return std::any_of(claimed.begin(), claimed.end(), [this](int32_t slot) {
      const auto holder = input_.running.find(state_.slots.slot(slot).holder);
      return holder != input_.running.end() && !holder->second.guest;
    });
  }

  // Starts a nominated job, for which no victim has been stopped yet, on whatever fits. It is then
  // no longer nominated, and its victims stay.
  bool StartNominated(const QueuedJob& job) {
    const GangDemand gang = state_.GangOf(job.demand, state_.RoomOf(job));
    if (gang.most < gang.least) return false;
    const std::vector<int32_t>& claimed = state_.slots.claims().at(job.id);
    for (const int32_t slot : claimed) state_.slots.SetClaim(slot, JobId{});
    const std::vector<int32_t> picked = state_.PickFor(job, gang);
    if (!picked.empty()) Start(job, picked, JobId{});
    // The devices that it gives up are free for others once the plan has been carried out.
    for (const int32_t slot : claimed) {
      if (state_.slots.slot(slot).holder != job.id) state_.slots.SetClaim(slot, job.id);
    }
    return !picked.empty();
  }

  void StartFirstNominated() {
    const QueuedJob& job = *nominated_.front();
    nominated_.pop_front();
    StartNominated(job);
  }

  Visit Consider(const QueuedJob& job) {
    // The walk skips nominated jobs whose shape has failed. Those of larger priorities are
    // therefore tried here, before jobs of smaller ones.
    while (!nominated_.empty() && state_.options.priorities &&
           nominated_.front()->priority > job.priority) {
      StartFirstNominated();
    }
    const auto nominated = std::find(nominated_.begin(), nominated_.end(), &job);
    if (nominated != nominated_.end()) {
      nominated_.erase(nominated);
      return StartNominated(job) ? Visit::kTaken : Visit::kPassed;
    }
    if (served_.count(job.id) > 0) return Visit::kPassed;
    const GangDemand gang = state_.GangOf(job.demand, state_.RoomOf(job));
    if (gang.most < gang.least || state_.quotas.IsArrayFull(job.array, job.array_parallel)) {
      return Visit::kKindFails;
    }
    const Reach& reach = state_.ReachOf(job);
    if (!CouldHold(state_.slots, reach.ever, gang)) return Visit::kShapeFails;
    if (TryStart(job, reach, gang)) return Visit::kTaken;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (reach.now[i] != Access::kNone) wanted_[i] = true;
    }
    state_.backfill.Keep(job.id, reach.now, gang, state_.IsOverdue(job));
    if (++failures_ < input_.config.pass_kinds_max) return Visit::kShapeFails;
    state_.is_complete = false;
    return Visit::kEnough;
  }

  // Starts the job on free devices, or nominates it.
  bool TryStart(const QueuedJob& job, const Reach& reach, const GangDemand& gang) {
    const std::vector<int32_t> picked = state_.PickFor(job, gang);
    if (!picked.empty()) {
      Start(job, picked, JobId{});
      return true;
    }
    const std::vector<int32_t> lent = state_.PickForGuest(job, gang);
    if (lent.empty()) return Preempt(job, reach, gang);
    Start(job, lent, KeeperOf(lent));
    return true;
  }

  // Returns the first job that keeps one of these slots.
  JobId KeeperOf(const std::vector<int32_t>& picked) const {
    for (const int32_t slot : picked) {
      const int32_t keeper = state_.slots.ClassOf(slot).keeper;
      if (!state_.slots.slot(slot).kept || keeper < 0) continue;
      return state_.backfill.heads()[static_cast<size_t>(keeper)].job;
    }
    return JobId{};
  }

  void Start(const QueuedJob& job, const std::vector<int32_t>& picked, JobId guest_of) {
    const HostAmount& resources = job.demand.resources;
    for (const int32_t slot : picked) {
      const HostAmount held = state_.slots.NeedOn(resources, state_.slots.ClassOf(slot));
      state_.slots.SetHolder(slot, job.id, held);
    }
    Charge(job, picked);
    if (job.array != JobId{}) state_.quotas.ChargeArray(job.array);
    std::optional<int64_t> end_us;
    if (job.expected_us > 0) end_us = state_.now.uptime_us + RoundUpExpected(job.expected_us);
    if (guest_of != JobId{}) end_us = state_.GuestGoneBy();
    state_.backfill.AddRelease(job.id, end_us, picked);
    started_.insert(job.id);
    plan_.placements.push_back(
        {job.id, RanksOn(state_.slots, input_.pool, picked, resources), guest_of});
  }

  bool Preempt(const QueuedJob& job, const Reach& reach, const GangDemand& gang) {
    if (!state_.options.preemption || !state_.options.priorities) return false;
    if (nomination_tries_ == kNominationTriesMax) return false;
    // Guests leave for the first job that waits for their devices, but for no job behind it.
    bool is_head = true;
    for (size_t i = 0; i < reach.now.size(); ++i) {
      if (reach.now[i] != Access::kNone && state_.slots.classes()[i].keeper >= 0) is_head = false;
    }
    ++nomination_tries_;
    const auto nomination = Nominate(state_.slots, input_.running, state_.held, state_.stopping,
                                     job, reach.now, gang, is_head);
    if (!nomination.has_value()) return false;
    state_.slots.SetResources(job.id, job.demand.resources);
    for (const int32_t slot : nomination->slots) state_.slots.SetClaim(slot, job.id);
    Preemption preemption{job.id, KeysOf(nomination->slots), {}};
    for (const auto& [victim, kept] : nomination->victims) {
      state_.stopping.insert(victim);
      for (const int32_t slot : kept) state_.slots.SetClaim(slot, victim);
      preemption.victims.push_back({victim, KeysOf(kept)});
    }
    Charge(job, nomination->slots);
    plan_.preemptions.push_back(std::move(preemption));
    return true;
  }

  void Grow() {
    const int64_t since_before_us = state_.now.uptime_us - input_.config.grow_after_us;
    for (const auto& [job, more] :
         GrowElastic(state_.slots, input_.running, state_.held, state_.stopping, wanted_,
                     state_.backfill.heads(), state_.share, state_.quotas, since_before_us)) {
      Growth growth{job, {}};
      for (const RankPlacement& rank : input_.running.at(job).ranks) {
        growth.devices.emplace_back(rank.worker, rank.device);
      }
      for (DeviceKey& key : KeysOf(more)) growth.devices.push_back(std::move(key));
      plan_.growths.push_back(std::move(growth));
    }
  }

  void FillFront() {
    const size_t limit = kFrontMax + started_.size();
    for (const JobId& job : FirstJobs(input_.queue, state_.share, state_.rules, limit)) {
      if (plan_.front.size() < kFrontMax && started_.count(job) == 0) plan_.front.push_back(job);
    }
    for (const JobId& job : input_.queue.with_holds()) {
      if (plan_.front.size() == kFrontMax) break;
      plan_.front.push_back(job);
    }
  }

  // Charges what the job gets beyond what is claimed for it, which was charged before.
  void Charge(const QueuedJob& job, const std::vector<int32_t>& picked) {
    static const std::vector<int32_t> kNone;
    const auto found = state_.slots.claims().find(job.id);
    const std::vector<int32_t>& claimed =
        found == state_.slots.claims().end() ? kNone : found->second;
    const HostAmount& resources = job.demand.resources;
    HostAmount of_hosts = state_.slots.NeedOnAll(picked, resources);
    of_hosts -= state_.slots.NeedOnAll(claimed, resources);
    const auto more = static_cast<int32_t>(picked.size()) - static_cast<int32_t>(claimed.size());
    state_.quotas.Charge(job.user, job.project, job.demand.is_deviceless ? 0 : more, of_hosts);
    state_.share.Charge(
        job.user, job.project,
        state_.slots.MilliOn(picked, resources) - state_.slots.MilliOn(claimed, resources));
  }

  std::vector<DeviceKey> KeysOf(const std::vector<int32_t>& slots) const {
    std::vector<DeviceKey> keys;
    keys.reserve(slots.size());
    for (const int32_t slot : slots) keys.push_back(state_.slots.KeyOf(input_.pool, slot));
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  const PassInput& input_;
  PassState& state_;
  Plan plan_;
  std::vector<bool> wanted_;  // classes that a waiting job could use
  std::set<JobId> served_;    // jobs with claims that ServeClaims has looked at
  // The jobs whose claims are whole and for which no victim has been stopped yet, in order.
  std::deque<const QueuedJob*> nominated_;
  absl::flat_hash_set<JobId> started_;
  int32_t failures_ = 0;
  int nomination_tries_ = 0;
};

}  // namespace

PassState::PassState(const PassInput& input, const PolicyOptions& pass_options)
    : options(pass_options),
      now(input.now),
      min_runtime_us(input.config.min_runtime_us),
      checkpoint_wait_us(input.config.checkpoint_wait_us),
      rules{pass_options.priorities, pass_options.fair_share,
            input.now.wall_us - input.config.overdue_after_us},
      quota_records(input.quotas),
      slots(input.pool, ComingReservations(input), ClaimedResources(input),
            input.queue.deviceless()),
      held(slots.Holders()),
      quotas(quota_records),
      share(input.usage, quota_records, input.config.usage_advance_us),
      backfill(slots, input.now.uptime_us, pass_options.backfill) {
  for (const auto& [id, job] : input.running) {
    ChargeRunning(job);
    if (job.array != JobId{}) quotas.ChargeArray(job.array);
    if (job.stops) stopping.insert(id);
    const auto found = held.find(id);
    std::optional<int64_t> end_us = job.end_us;
    if (job.guest && !job.stops) {
      end_us = std::min(end_us.value_or(GuestGoneBy()), GuestGoneBy());
    }
    if (found != held.end()) backfill.AddRelease(id, end_us, found->second);
  }
  ChargeClaims(input);
}

void PassState::ChargeRunning(const RunningJob& job) {
  HostAmount of_hosts;
  int32_t devices = 0;
  for (const RankPlacement& rank : job.ranks) {
    of_hosts += rank.held;
    if (!rank.device.empty()) ++devices;
  }
  int64_t milli = devices * kWholeDevice;
  if (const auto found = held.find(job.id); devices == 0 && found != held.end()) {
    milli = slots.MilliOn(found->second, job.demand.resources);
  }
  quotas.Charge(job.user, job.project, devices, of_hosts);
  share.Charge(job.user, job.project, milli);
}

void PassState::ChargeClaims(const PassInput& input) {
  const auto charge = [this](const auto& job, const std::vector<int32_t>& more) {
    const HostAmount& resources = job.demand.resources;
    quotas.Charge(job.user, job.project,
                  job.demand.is_deviceless ? 0 : static_cast<int32_t>(more.size()),
                  slots.NeedOnAll(more, resources));
    share.Charge(job.user, job.project, slots.MilliOn(more, resources));
  };
  for (const auto& [id, claimed] : slots.claims()) {
    if (const QueuedJob* job = input.queue.Find(id); job != nullptr) {
      charge(*job, claimed);
    } else if (const auto found = input.running.find(id); found != input.running.end()) {
      std::vector<int32_t> more;
      std::copy_if(claimed.begin(), claimed.end(), std::back_inserter(more),
                   [&, holder = id](int32_t slot) { return slots.slot(slot).holder != holder; });
      charge(found->second, more);
    }
  }
}

const Reach& PassState::ReachOf(const QueuedJob& job) const {
  const Demand& demand = job.demand;
  const auto filter =
      std::tie(demand.type, demand.memory_bytes, demand.host_need_bytes, demand.gpu_need_bytes,
               demand.labels, demand.bf16, demand.dataset, demand.data_digest, job.reservations,
               job.reservation, job.named_user, demand.resources, demand.is_deviceless);
  auto found = reaches_.find(filter);
  if (found == reaches_.end()) {
    Reach reach = slots.ReachOf(demand, job.reservations, job.reservation, job.named_user);
    found = reaches_.emplace(filter, std::move(reach)).first;
  }
  return found->second;
}

GangDemand PassState::GangOf(const Demand& demand, int32_t room) const {
  const int32_t least = options.elastic ? demand.least() : demand.count;
  GangDemand gang{least,
                  std::min(demand.count, room),
                  demand.mixed,
                  demand.spread,
                  demand.resources,
                  demand.is_deviceless};
  gang.one_host = demand.one_host && demand.count > 1;  // one rank is on one host anyway
  return gang;
}

int32_t PassState::LargestFor(const QueuedJob& job, const GangDemand& gang) const {
  const int64_t expected_us = RoundUpExpected(job.expected_us);
  const Offer lent = backfill.LentTo(job.id, expected_us);
  GangDemand of_job = gang;
  of_job.reservations = &job.reservations;
  of_job.lent = &lent;
  return LargestGang(slots, backfill.OfferFor(ReachOf(job).now, job.id, expected_us), of_job);
}

int32_t PassState::RoomOf(const QueuedJob& job) const {
  const HostAmount need = quotas.has_host_limits() ? NeedOf(job) : HostAmount{};
  const int32_t room = quotas.Room(job.user, job.project, need, job.demand.devices());
  const auto found = slots.claims().find(job.id);
  return found == slots.claims().end() ? room : room + static_cast<int32_t>(found->second.size());
}

std::vector<int32_t> PassState::PickFor(const QueuedJob& job, const GangDemand& wanted) const {
  const Reach& reach = ReachOf(job);
  const int64_t expected_us = RoundUpExpected(job.expected_us);
  GangDemand gang = wanted;
  Offer lent;
  if (IsBoundByHosts(slots, gang)) {
    lent = backfill.LentTo(job.id, expected_us);
    gang.lent = &lent;
    gang.reservations = &job.reservations;
  }
  if (reach.spares) {
    std::vector<int32_t> picked =
        PickSlots(slots, backfill.OfferFor(reach.clean, job.id, expected_us), gang);
    if (!picked.empty()) return picked;
  }
  return PickSlots(slots, backfill.OfferFor(reach.now, job.id, expected_us), gang);
}

std::vector<int32_t> PassState::PickForGuest(const QueuedJob& job, const GangDemand& wanted) const {
  if (!options.guests || !options.preemption || !options.backfill || !job.preemptible) return {};
  // A guest should get something done before it has to leave.
  const int64_t until_us = GuestGoneBy() + min_runtime_us;
  const Offer& reach = ReachOf(job).now;
  const Offer offer = backfill.OfferForGuest(reach, until_us);
  // A guest gets more than any other job only where something is kept that is not lent to it.
  const Offer lent = backfill.OfferFor(reach, job.id, RoundUpExpected(job.expected_us));
  bool gets_more = false;
  for (size_t i = 0; i < offer.size() && !gets_more; ++i) {
    gets_more =
        slots.classes()[i].kept > 0 && offer[i] == Access::kKept && lent[i] != Access::kKept;
  }
  if (!gets_more) return {};
  GangDemand gang = wanted;
  gang.reservations = &job.reservations;
  return PickSlots(slots, offer, gang);
}

Plan RunPass(const PassInput& input, PassState& state) {
  return Pass(input, state).Run();
}

}  // namespace trainyard::core
