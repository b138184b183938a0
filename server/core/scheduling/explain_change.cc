// Tries one change of a job after another until one would start it.
#include "server/core/scheduling/explain_change.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/core/scheduling/host_caps.h"
#include "server/core/scheduling/preemption.h"

namespace trainyard::core {
namespace {

constexpr int32_t kPriorityMax = 1000;  // the largest that a spec may have
// The number of priorities that are tried. Each costs a search for victims.
constexpr size_t kPrioritiesTried = 16;

class Finder {
 public:
  Finder(const PassInput& input, const PassState& state, const QueuedJob& job)
      : input_(input), state_(state), job_(job) {}

  std::optional<Change> Find() const {
    if (!job_.holds.empty() || Starts(job_)) return std::nullopt;
    if (state_.quotas.IsArrayFull(job_.array, job_.array_parallel)) return std::nullopt;
    for (const auto& attempt :
         {&Finder::LessOfHosts, &Finder::FewerDevices, &Finder::OtherType, &Finder::Mixed,
          &Finder::LessMemory, &Finder::InF32, &Finder::NoLabels, &Finder::ShorterLimit,
          &Finder::LargerPriority}) {
      std::optional<Change> change = (this->*attempt)();
      if (change.has_value() && IsAccepted(*change)) return change;
    }
    return std::nullopt;
  }

 private:
  bool IsAccepted(const Change& change) const {
    return input_.accept == nullptr || (*input_.accept)(change.fields);
  }

  int32_t LargestOf(const QueuedJob& job, const GangDemand& gang) const {
    return state_.LargestFor(job, gang);
  }

  bool Starts(const QueuedJob& job) const {
    const GangDemand gang = state_.GangOf(job.demand, state_.RoomOf(job));
    return gang.most >= gang.least && LargestOf(job, gang) > 0;
  }

  // Finds the most processors, or the most memory, or both, with which it would start.
  std::optional<Change> LessOfHosts() const {
    const HostAmount need = state_.NeedOf(job_);
    if (need.empty() || !IsBoundByHosts(state_.slots, state_.GangOf(job_.demand, kNoLimit))) {
      return std::nullopt;
    }
    for (const auto& [fewer_cpus, less_memory] :
         {std::pair(true, false), {false, true}, {true, true}}) {
      QueuedJob job = job_;
      job.demand.resources = need;
      const auto most = [&](int64_t limit, const auto& set) -> int64_t {
        int64_t low = 0;
        int64_t high = limit;  // with `low` it starts, with `high` it does not
        while (high - low > 1) {
          const int64_t middle = low + (high - low) / 2;
          set(middle);
          (Starts(job) ? low : high) = middle;
        }
        if (low > 0) set(low);
        return low;
      };
      constexpr int64_t kUnit = int64_t{1} << 28;  // 256 MiB
      const auto set_cpus = [&](int64_t cpus) {
        job.demand.resources.cpus = static_cast<int32_t>(cpus);
      };
      const auto set_memory = [&](int64_t units) {
        job.demand.resources.memory_bytes = units * kUnit;
      };
      if (less_memory) set_memory(1);
      std::vector<std::string> parts;
      Change change;
      if (fewer_cpus) {
        const int64_t cpus = most(need.cpus, set_cpus);
        if (cpus == 0) continue;
        parts.push_back(absl::StrCat(cpus, cpus == 1 ? " cpu" : " cpus"));
        change.fields.emplace_back("resources.cpus", absl::StrCat(cpus));
      }
      if (less_memory) {
        const int64_t units = most((need.memory_bytes + kUnit - 1) / kUnit, set_memory);
        if (units == 0) continue;
        // It is exact, because the change is tried as it stands.
        const std::string memory =
            units % 4 == 0 ? absl::StrCat(units / 4, " GiB") : absl::StrCat(units * 256, " MiB");
        parts.push_back(absl::StrCat(memory, " of memory"));
        change.fields.emplace_back("resources.memory", memory);
      }
      if (!Starts(job)) continue;
      change.text =
          absl::StrCat("with ", absl::StrJoin(parts, " and "), " for ",
                       job_.demand.count > 1 ? "each rank" : "its rank", " it would start now");
      return change;
    }
    return std::nullopt;
  }

  std::optional<Change> FewerDevices() const {
    if (job_.demand.is_deviceless) return std::nullopt;
    GangDemand gang = state_.GangOf(job_.demand, state_.RoomOf(job_));
    gang.most = std::min(gang.most, gang.least - 1);
    gang.least = 1;
    const int32_t largest = gang.most < 1 ? 0 : LargestOf(job_, gang);
    const int32_t count = largest / job_.demand.multiple_of * job_.demand.multiple_of;
    if (count == 0) return std::nullopt;
    const char* field = job_.demand.is_elastic() ? "devices.min" : "devices.count";
    return Change{
        {{field, absl::StrCat(count)}},
        absl::StrCat("with ", count, count == 1 ? " device" : " devices", " it would start now")};
  }

  std::optional<Change> OtherType() const {
    if (job_.demand.type.empty()) return std::nullopt;
    QueuedJob job = job_;
    for (const std::string& type : state_.slots.types()) {
      if (type.empty()) continue;  // the seats
      job.demand.type = type;
      if (Starts(job)) {
        return Change{{{"devices.type", type}},
                      absl::StrCat("on devices of type ", type, " it would start now")};
      }
    }
    return std::nullopt;
  }

  std::optional<Change> Mixed() const {
    if (job_.demand.mixed && job_.demand.type.empty()) return std::nullopt;
    if (job_.demand.is_deviceless) return std::nullopt;
    QueuedJob job = job_;
    job.demand.mixed = true;
    job.demand.type.clear();
    if (!Starts(job)) return std::nullopt;
    Change change{{{"devices.mixed", "true"}}, "with devices of several types it would start now"};
    if (!job_.demand.type.empty())
      change.fields.insert(change.fields.begin(), {"devices.type", ""});
    return change;
  }

  std::optional<Change> LessMemory() const {
    if (job_.demand.memory_bytes == 0) return std::nullopt;
    QueuedJob job = job_;
    job.demand.memory_bytes = 0;
    if (!Starts(job)) return std::nullopt;
    return Change{{{"devices.memory", ""}}, "if devices with less memory did, it would start now"};
  }

  std::optional<Change> InF32() const {
    if (!job_.demand.bf16) return std::nullopt;
    QueuedJob job = job_;
    job.demand.bf16 = false;
    if (!Starts(job)) return std::nullopt;
    return Change{{{"train.precision", "f32"}}, "in f32 it would start now"};
  }

  std::optional<Change> NoLabels() const {
    if (job_.demand.labels.empty()) return std::nullopt;
    QueuedJob job = job_;
    job.demand.labels.clear();
    if (!Starts(job)) return std::nullopt;
    return Change{{{"devices.labels", ""}}, "on workers without these labels it would start now"};
  }

  // Finds the longest time for which some head would lend its devices.
  std::optional<Change> ShorterLimit() const {
    std::set<std::pair<int64_t, JobId>> heads;
    for (const Head& head : state_.backfill.heads()) {
      heads.insert({state_.now.uptime_us - head.lend_until_us, head.job});
    }
    for (const auto& [minus_gap_us, head] : heads) {
      QueuedJob job = job_;
      // Times are rounded up by less than a sixteenth (RoundUpExpected).
      const int64_t limit_us = -minus_gap_us - (-minus_gap_us) / 16;
      const int64_t unit_us = limit_us >= 2 * kMinute ? kMinute : kSecond;
      job.expected_us = limit_us / unit_us * unit_us;
      if (job.expected_us <= 0 || !Starts(job)) continue;
      const std::string limit =
          absl::StrCat(job.expected_us / unit_us, unit_us == kMinute ? "m" : "s");
      return Change{{{"time_limit", limit}},
                    absl::StrCat("with a time limit of ", limit,
                                 " it would start now, on devices "
                                 "that are kept for ",
                                 JobName(head))};
    }
    return std::nullopt;
  }

  // Tries priorities just above a head whose devices the job could have, or just above jobs that it
  // could stop.
  std::optional<Change> LargerPriority() const {
    if (!state_.options.priorities) return std::nullopt;
    const GangDemand gang = state_.GangOf(job_.demand, state_.RoomOf(job_));
    if (gang.most < gang.least) return std::nullopt;
    std::set<int32_t> priorities;
    for (const Head& head : state_.backfill.heads()) {
      const QueuedJob* ahead = input_.queue.Find(head.job);
      if (ahead != nullptr) priorities.insert(ahead->priority + 1);
    }
    for (const auto& [id, running] : input_.running) {
      if (running.may_preempt) priorities.insert(running.priority + 1);
    }
    size_t tried = 0;
    Slots slots = state_.slots;
    for (const int32_t priority : priorities) {
      if (priority <= job_.priority || priority > kPriorityMax) continue;
      if (++tried > kPrioritiesTried) break;
      const char* how = HowWith(slots, priority, gang);
      if (how == nullptr) continue;
      return Change{{{"priority", absl::StrCat(priority)}},
                    absl::StrCat("with priority ", priority, " it would ", how)};
    }
    return std::nullopt;
  }

  const char* HowWith(Slots& slots, int32_t priority, const GangDemand& gang) const {
    Offer offer = state_.ReachOf(job_).now;
    for (size_t i = 0; i < offer.size(); ++i) {
      const int32_t keeper = slots.classes()[i].keeper;
      if (offer[i] == Access::kNone || keeper < 0) continue;
      const QueuedJob* head =
          input_.queue.Find(state_.backfill.heads()[static_cast<size_t>(keeper)].job);
      if (head == nullptr || head->priority < priority) offer[i] = Access::kKept;
    }
    if (LargestGang(slots, offer, gang) > 0) return "start now";
    if (!state_.options.preemption) return nullptr;
    QueuedJob job = job_;
    job.priority = priority;
    const auto nomination = Nominate(slots, input_.running, state_.held, state_.stopping, job,
                                     state_.ReachOf(job_).now, gang);
    return nomination.has_value() ? "start as soon as jobs with a smaller one have stopped"
                                  : nullptr;
  }

  const PassInput& input_;
  const PassState& state_;
  const QueuedJob& job_;
};

}  // namespace

std::optional<Change> FindChange(const PassInput& input, const PassState& state,
                                 const QueuedJob& job) {
  return Finder(input, state, job).Find();
}

}  // namespace trainyard::core
