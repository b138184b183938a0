// Looks at each pilot by itself.
#include "server/provision/kubernetes/pilots.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::provision::kubernetes {
namespace {

// Holds what there is of one pilot.
struct Parts {
  std::vector<const Found*> pods;
  const Found* job = nullptr;
};

void Delete(const Found& found, bool is_job, std::vector<Chore>& chores) {
  chores.push_back({is_job, found.name, found.uid, false});
}

// Deletes what has ended long ago, and what a dead node holds.
void TidyUp(const Found& found, bool is_job, int64_t now_us, std::vector<Chore>& chores) {
  if (HasEnded(found.state)) {
    if (found.delete_us == 0 && now_us - found.end_us > kEndedStaysUs) {
      Delete(found, is_job, chores);
    }
  } else if (!is_job && found.delete_us > 0 && now_us - found.delete_us > kDeadNodeUs) {
    chores.push_back({false, found.name, found.uid, true});
  }
}

// Returns why the pilot cannot go on, though some of its pods do. Empty if it can.
std::string WhyBroken(const Parts& parts, int64_t now_us) {
  const int32_t nodes = parts.pods.front()->nodes;
  int64_t newest_us = 0;
  for (const Found* pod : parts.pods) {
    newest_us = std::max(newest_us, pod->create_us);
    if (HasEnded(pod->state) || pod->worker_ended || pod->delete_us > 0) {
      const std::string why = pod->reason.empty() ? "its program has ended" : pod->reason;
      return parts.pods.size() == 1 ? why : absl::StrCat(pod->name, ": ", why);
    }
    if (pod->cannot_begin && now_us - std::max(pod->start_us, pod->create_us) > kBeginPatienceUs) {
      return pod->reason;
    }
    if (pod->is_of_job) return "its Job is gone";
  }
  const auto count = static_cast<int32_t>(parts.pods.size());
  if (count < nodes && now_us - newest_us > kPodsSettleUs) {
    return absl::StrCat("only ", count, " of ", nodes, " pods are there");
  }
  return "";
}

// Says how pods that all have ended are one end.
void TakeEnd(const Parts& parts, ListedPilot& pilot) {
  // A failure explains the other ends.
  const Found& worst =
      **std::max_element(parts.pods.begin(), parts.pods.end(),
                         [](const Found* a, const Found* b) { return a->state < b->state; });
  pilot.state = worst.state;
  pilot.reason = worst.reason;
}

// Says how far pods are of which none has ended.
void TakeProgress(const Parts& parts, int32_t nodes, ListedPilot& pilot) {
  int32_t placed = 0;
  std::string why_waits;
  std::string why_hindered;
  for (const Found* pod : parts.pods) {
    const bool waits = pod->state == ForeignState::kWaiting;
    if (!waits) ++placed;
    std::string& why = waits ? why_waits : why_hindered;
    if (why.empty()) why = pod->reason;
    pilot.start_us = std::max(pilot.start_us, pod->start_us);
    if (pod->expire_us > 0) {
      pilot.expire_us =
          pilot.expire_us == 0 ? pod->expire_us : std::min(pilot.expire_us, pod->expire_us);
    }
  }
  if (placed == nodes) {
    pilot.state = ForeignState::kActive;
    pilot.reason = why_hindered;
    return;
  }
  pilot.state = ForeignState::kWaiting;
  pilot.reason = placed == 0 ? why_waits
                             : absl::StrCat(placed, " of ", nodes, " pods have a node",
                                            why_waits.empty() ? "" : ": ", why_waits);
  pilot.start_us = 0;
  pilot.expire_us = 0;
}

void LookAtPods(const Parts& parts, int64_t now_us, ListedPilot& pilot,
                std::vector<Chore>& chores) {
  const bool all_ended = std::all_of(parts.pods.begin(), parts.pods.end(),
                                     [](const Found* pod) { return HasEnded(pod->state); });
  for (const Found* pod : parts.pods) TidyUp(*pod, false, now_us, chores);
  if (all_ended) return TakeEnd(parts, pilot);
  std::string why = WhyBroken(parts, now_us);
  if (why.empty()) return TakeProgress(parts, parts.pods.front()->nodes, pilot);
  pilot.state = ForeignState::kLeaving;
  pilot.reason = std::move(why);
  for (const Found* pod : parts.pods) {
    if (!HasEnded(pod->state) && pod->delete_us == 0) Delete(*pod, false, chores);
  }
}

void LookAtJob(const Parts& parts, int64_t now_us, ListedPilot& pilot, std::vector<Chore>& chores) {
  const Found& job = *parts.job;
  TidyUp(job, true, now_us, chores);
  pilot.state = job.state;
  pilot.reason = job.reason;
  if (job.state != ForeignState::kActive) return;
  // Its controller looks after pods that end.
  Parts alive;
  for (const Found* pod : parts.pods) {
    if (!HasEnded(pod->state)) alive.pods.push_back(pod);
  }
  TakeProgress(alive, job.nodes, pilot);
  for (const Found* pod : alive.pods) {
    TidyUp(*pod, false, now_us, chores);
    if (pod->cannot_begin && now_us - std::max(pod->start_us, pod->create_us) > kBeginPatienceUs) {
      pilot.state = ForeignState::kLeaving;
      pilot.reason = pod->reason;
    }
  }
  if (pilot.state == ForeignState::kLeaving) {
    Delete(job, true, chores);
  } else if (pilot.state == ForeignState::kActive) {
    pilot.start_us = job.start_us;
    pilot.expire_us = job.expire_us;
  } else if (pilot.reason.empty()) {
    pilot.reason = "its pods are made";
  }
}

}  // namespace

Sights JoinPilots(const std::vector<Found>& pods, const std::vector<Found>& jobs, int64_t now_us) {
  std::map<std::string, Parts> all;
  for (const Found& pod : pods) all[pod.pilot].pods.push_back(&pod);
  for (const Found& job : jobs) all[job.pilot].job = &job;
  Sights sights;
  for (const auto& [name, parts] : all) {
    ListedPilot& pilot = sights.pilots.emplace_back();
    pilot.name = name;
    pilot.foreign_id = name;
    if (parts.job != nullptr) {
      LookAtJob(parts, now_us, pilot, sights.chores);
    } else {
      LookAtPods(parts, now_us, pilot, sights.chores);
    }
  }
  return sights;
}

}  // namespace trainyard::provision::kubernetes
