// Follows pilots through their states. A function here names the edges of PilotState that it takes.
#include "server/provision/core/observe.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/provision/core/breaker.h"

namespace trainyard::provision {
namespace {

Pilot* FindPilot(Provider& provider, const std::string& server_id, const std::string& name) {
  const auto number = PilotNumber(server_id, provider.spec.name, name);
  if (!number.has_value()) return nullptr;
  const auto found = provider.pilots.find(*number);
  return found == provider.pilots.end() ? nullptr : &found->second;
}

// Edge 1, or adoption from any state in which the id was unknown.
void LearnId(Provider& provider, Pilot& pilot, const std::string& foreign_id, int64_t now_us) {
  if (!pilot.foreign_id.empty() || foreign_id.empty()) return;
  pilot.foreign_id = foreign_id;
  pilot.submit_us = now_us;
  if (pilot.state == PilotState::kWanted) pilot.state = PilotState::kSubmitted;
  NoteAccepted(provider);
}

// Edge 6. `is_failure` tells that nobody wanted it to end like this.
void End(Provider& provider, Pilot& pilot, std::string reason, bool is_failure, int64_t now_us,
         std::vector<Decision>& decisions) {
  const PilotState before = pilot.state;
  pilot.state = PilotState::kEnded;
  pilot.end_us = now_us;
  // The reason for which it was cancelled says more than that it is gone.
  if (before != PilotState::kEnding || pilot.reason.empty()) pilot.reason = std::move(reason);
  if (is_failure && before != PilotState::kEnding && pilot.connect_us == 0) {
    const auto note = pilot.foreign_id.empty() ? NoteFailedSubmission : NoteFailedStart;
    note(provider, pilot, now_us, decisions);
  }
  decisions.push_back(
      {DecisionKind::kDropTokens, provider.spec.name, pilot.name, pilot.foreign_id, ""});
}

void TakeResult(const std::string& server_id, Provider& provider, const SubmitResult& result,
                int64_t now_us, std::vector<Decision>& decisions) {
  Pilot* pilot = FindPilot(provider, server_id, result.pilot);
  if (pilot == nullptr || !IsLive(*pilot) || !pilot->foreign_id.empty()) return;
  switch (result.kind) {
    case SubmitResult::Kind::kAccepted:
      LearnId(provider, *pilot, result.foreign_id, now_us);
      break;
    case SubmitResult::Kind::kRefused:
      End(provider, *pilot, absl::StrCat("the submission was refused: ", result.reason), true,
          now_us, decisions);
      break;
    case SubmitResult::Kind::kUnknown:
      // It stays as it is until a listing shows it, or lacks it for long enough.
      pilot->foreign_reason = result.reason;
      break;
  }
}

std::string EndWords(const ListedPilot& listed, const Pilot& pilot) {
  const char* when = pilot.connect_us == 0 ? " before a worker connected" : "";
  std::string why = listed.reason.empty() ? "" : absl::StrCat(" (", listed.reason, ")");
  switch (listed.state) {
    case ForeignState::kTimedOut:
      return absl::StrCat("it has reached its time limit", when);
    case ForeignState::kCancelled:
      return absl::StrCat("somebody has cancelled it at the provider", when);
    case ForeignState::kCompleted:
      return absl::StrCat("its program has ended", when);
    default:
      return absl::StrCat("it has failed at the provider", when, why);
  }
}

// Edges 2, 3 and 6.
void TakeListed(Provider& provider, Pilot& pilot, const ListedPilot& listed, int64_t now_us,
                std::vector<Decision>& decisions) {
  LearnId(provider, pilot, listed.foreign_id, now_us);
  if (HasEnded(listed.state)) {
    End(provider, pilot, EndWords(listed, pilot), true, now_us, decisions);
    return;
  }
  pilot.foreign_reason = listed.reason;
  if (listed.expire_us != 0) pilot.expire_us = listed.expire_us;
  if (listed.state == ForeignState::kWaiting) {
    if (IsComing(pilot)) pilot.state = PilotState::kQueued;
    return;
  }
  if (pilot.start_us == 0) pilot.start_us = now_us;
  if (IsComing(pilot)) pilot.state = PilotState::kStarting;
}

// Returns true if the listing would show the pilot if it were there.
bool WouldBeListed(const Pilot& pilot, const Listing& listing) {
  return pilot.foreign_id.empty() ? listing.begin_us > pilot.create_us + kSubmissionSettlesUs
                                  : listing.begin_us > pilot.submit_us;
}

std::string AbsenceWords(const Pilot& pilot) {
  if (!pilot.foreign_id.empty()) return "the provider does not list it any more";
  return absl::StrCat("the provider never listed it", pilot.foreign_reason.empty() ? "" : ": ",
                      pilot.foreign_reason);
}

void CancelForeign(const Provider& provider, const ListedPilot& listed, const char* why,
                   std::vector<Decision>& decisions) {
  decisions.push_back(
      {DecisionKind::kCancel, provider.spec.name, listed.name, listed.foreign_id, why});
}

// Returns true for a name of ours whose provider is not known, as after a restore of a state from
// before the provider was added.
bool IsOfNoProvider(const State& state, absl::string_view name) {
  const std::string prefix = absl::StrCat("ty-", state.server_id, "-");
  if (!absl::ConsumePrefix(&name, prefix)) return false;
  const std::string provider(name.substr(0, std::min(name.rfind('-'), name.size())));
  return !state.providers.contains(provider) &&
         PilotNumber(state.server_id, provider, absl::StrCat(prefix, name)).has_value();
}

void TakeListing(State& state, Provider& provider, const Listing& listing,
                 std::vector<Decision>& decisions) {
  const std::string& server_id = state.server_id;
  const int64_t now_us = state.now_us;
  // An answer that was overtaken by a later one tells nothing.
  if (listing.begin_us <= provider.listing_us) return;
  provider.listing_failure = listing.failure;
  if (!listing.failure.empty()) return;
  provider.listing_us = listing.begin_us;
  provider.reached_us = now_us;
  provider.strangers = 0;
  // First the names: of several allocations of one name, the one with the known id is the pilot,
  // and else the first that has not ended.
  std::map<int64_t, const ListedPilot*> chosen;
  for (const ListedPilot& listed : listing.pilots) {
    const auto number = PilotNumber(server_id, provider.spec.name, listed.name);
    if (!number.has_value()) continue;
    const auto found = provider.pilots.find(*number);
    if (found == provider.pilots.end() || !IsLive(found->second)) continue;
    const Pilot& pilot = found->second;
    if (!pilot.foreign_id.empty()) {
      if (pilot.foreign_id == listed.foreign_id) chosen[*number] = &listed;
      continue;
    }
    const ListedPilot*& best = chosen[*number];
    if (best == nullptr || (HasEnded(best->state) && !HasEnded(listed.state))) best = &listed;
  }
  for (const ListedPilot& listed : listing.pilots) {
    const auto number = PilotNumber(server_id, provider.spec.name, listed.name);
    if (!number.has_value()) {
      if (!HasEnded(listed.state) && IsOfNoProvider(state, listed.name)) {
        CancelForeign(provider, listed, "it is ours, but its provider is not known", decisions);
      }
      continue;
    }
    const auto chosen_one = chosen.find(*number);
    if (chosen_one != chosen.end() && chosen_one->second == &listed) continue;
    // A state from a backup may be older than its pilots. Their numbers are used.
    state.next_number = std::max(state.next_number, *number + 1);
    if (HasEnded(listed.state)) continue;
    provider.strangers += 1;
    CancelForeign(provider, listed, "it is ours, but nobody waits for it", decisions);
  }
  for (auto& [number, pilot] : provider.pilots) {
    if (!IsLive(pilot)) continue;
    const auto found = chosen.find(number);
    if (found != chosen.end()) {
      TakeListed(provider, pilot, *found->second, now_us, decisions);
    } else if (WouldBeListed(pilot, listing)) {
      End(provider, pilot, AbsenceWords(pilot), true, now_us, decisions);
    }
  }
}

// Edge 4.
void TakeConnected(Provider& provider, Pilot& pilot, const WorkerSight& sight, int64_t now_us,
                   std::vector<Decision>& decisions) {
  if (pilot.connect_us == 0) {
    pilot.connect_us = now_us;
    // One that has not what was declared proves nothing.
    if (sight.mismatch.empty()) NoteConnected(provider, pilot, decisions);
  }
  if (pilot.start_us == 0) pilot.start_us = now_us;
  if (IsComing(pilot)) pilot.state = PilotState::kRunning;
  pilot.unneeded_since_us = 0;
}

void EndIdle(Provider& provider, Pilot& pilot) {
  if (!pilot.has_worked) provider.unused_pilots += 1;
  BeginEnding(pilot, "it had no work");
}

void TakeWork(Provider& provider, Pilot& pilot, const WorkerSight& sight, int64_t now_us,
              std::vector<Decision>& decisions) {
  pilot.lost_since_us = 0;
  if (sight.busy > 0) {
    pilot.idle_since_us = 0;
    pilot.has_worked = true;
    provider.unused_pilots = 0;
    // It got work before it was told to take none. Whoever is busy stays.
    pilot.drain_us = 0;
    return;
  }
  if (!sight.mismatch.empty()) {
    BeginEnding(pilot, sight.mismatch);
    NoteFailedStart(provider, pilot, now_us, decisions);
    return;
  }
  if (pilot.idle_since_us == 0) pilot.idle_since_us = now_us;
  if (pilot.drain_us != 0 && sight.is_draining) EndIdle(provider, pilot);
}

}  // namespace

void BeginEnding(Pilot& pilot, std::string reason) {
  if (pilot.state >= PilotState::kEnding) return;
  pilot.state = PilotState::kEnding;
  pilot.reason = std::move(reason);
  pilot.cancel_us = 0;
}

void ObserveProvider(State& state, Provider& provider, const ProviderNews& news,
                     std::vector<Decision>& decisions) {
  for (const SubmitResult& result : news.submitted) {
    TakeResult(state.server_id, provider, result, state.now_us, decisions);
  }
  if (news.listing.has_value()) TakeListing(state, provider, *news.listing, decisions);
}

void ObserveWorkers(Provider& provider, const std::vector<WorkerSight>& workers, int64_t now_us,
                    std::vector<Decision>& decisions) {
  std::map<std::string, const WorkerSight*> sights;
  for (const WorkerSight& sight : workers) sights[sight.pilot] = &sight;
  for (auto& [number, pilot] : provider.pilots) {
    if (!IsLive(pilot)) continue;
    const auto sight = sights.find(pilot.name);
    if (sight != sights.end() && sight->second->connected > 0) {
      TakeConnected(provider, pilot, *sight->second, now_us, decisions);
      if (pilot.state == PilotState::kRunning) {
        TakeWork(provider, pilot, *sight->second, now_us, decisions);
      }
    } else if (pilot.state == PilotState::kRunning) {
      pilot.idle_since_us = 0;
      if (pilot.lost_since_us == 0) pilot.lost_since_us = now_us;
      // It was told to take no work, and has gone by itself. A worker that is silent for a while
      // and has jobs goes on with them.
      const bool is_busy = sight != sights.end() && sight->second->busy > 0;
      if (pilot.drain_us != 0 && !is_busy) EndIdle(provider, pilot);
    }
  }
}

void ObserveTime(Provider& provider, int64_t now_us, int64_t awake_us,
                 std::vector<Decision>& decisions) {
  for (auto& [number, pilot] : provider.pilots) {
    const int64_t patience_us = provider.spec.start_timeout_us;
    if (pilot.state == PilotState::kStarting &&
        now_us - std::max(pilot.start_us, awake_us) > patience_us) {
      BeginEnding(pilot, "its allocation had begun, but no worker of it connected in time");
      NoteFailedStart(provider, pilot, now_us, decisions);
    } else if (pilot.state == PilotState::kRunning && pilot.lost_since_us != 0 &&
               now_us - std::max(pilot.lost_since_us, awake_us) > patience_us) {
      BeginEnding(pilot, "its workers were not heard any more");
    }
  }
}

}  // namespace trainyard::provision
