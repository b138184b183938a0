// Puts the parts of a turn in order, and carries out what people ask for.
#include "server/provision/core/step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/provision/core/breaker.h"
#include "server/provision/core/demand.h"
#include "server/provision/core/observe.h"

namespace trainyard::provision {
namespace {

// Orders the cancellation of what ends, and drops old records.
void FollowUp(Provider& provider, int64_t now_us, std::vector<Decision>& decisions) {
  for (auto it = provider.pilots.begin(); it != provider.pilots.end();) {
    Pilot& pilot = it->second;
    if (pilot.state == PilotState::kEnding && !pilot.foreign_id.empty() &&
        (pilot.cancel_us == 0 || now_us - pilot.cancel_us >= kCancelEveryUs)) {
      pilot.cancel_us = now_us;
      decisions.push_back(
          {DecisionKind::kCancel, provider.spec.name, pilot.name, pilot.foreign_id, pilot.reason});
    }
    if (!IsLive(pilot) && now_us - pilot.end_us >= kKeepEndedUs) {
      decisions.push_back(
          {DecisionKind::kForget, provider.spec.name, pilot.name, pilot.foreign_id, ""});
      it = provider.pilots.erase(it);
    } else {
      ++it;
    }
  }
}

// Returns true if the pilots of the two differ. The other fields say how many there are, and when.
bool AreOtherPilots(const ProviderSpec& a, const ProviderSpec& b) {
  return a.kind != b.kind || a.owner != b.owner || a.node != b.node || a.nodes != b.nodes ||
         a.time_limit_us != b.time_limit_us;
}

absl::StatusOr<Provider*> Find(State& state, const std::string& name) {
  const auto found = state.providers.find(name);
  if (found == state.providers.end()) return error::ProviderNotFound(name);
  return &found->second;
}

}  // namespace

std::vector<Decision> Step(State& state, const Inputs& inputs) {
  std::vector<Decision> decisions;
  state.now_us = std::max(state.now_us, inputs.now_us);
  for (auto& [name, provider] : state.providers) {
    const auto news = inputs.news.find(name);
    if (news != inputs.news.end()) {
      ObserveProvider(state, provider, news->second, decisions);
    }
    // A pilot may connect before a listing shows that it has begun.
    ObserveWorkers(provider, inputs.workers, state.now_us, decisions);
    ObserveTime(provider, state.now_us, state.awake_us, decisions);
    NoteTime(state, provider, decisions);
  }
  ServeDemand(state, inputs.demand, decisions);
  for (auto it = state.providers.begin(); it != state.providers.end();) {
    FollowUp(it->second, state.now_us, decisions);
    if (it->second.is_removing && CountLive(it->second) == 0) {
      for (const auto& [number, pilot] : it->second.pilots) {
        decisions.push_back({DecisionKind::kForget, it->first, pilot.name, pilot.foreign_id, ""});
      }
      decisions.push_back({DecisionKind::kForgetProvider, it->first, "", "", ""});
      it = state.providers.erase(it);
    } else {
      ++it;
    }
  }
  return decisions;
}

void WakeUp(State& state, int64_t now_us) {
  // A clock that was ahead must not stop everything until the time that it told has come.
  const auto begin_at_last = [now_us](int64_t& us) { us = std::min(us, now_us); };
  state.now_us = now_us;
  state.awake_us = now_us;
  for (auto& [name, provider] : state.providers) {
    provider.listing_us = 0;
    provider.reached_us = now_us;
    begin_at_last(provider.last_submit_us);
    provider.breaker.until_us = std::min(provider.breaker.until_us, now_us + kPauseMaxUs);
    for (auto& [number, pilot] : provider.pilots) {
      for (int64_t* us : {&pilot.create_us, &pilot.submit_us, &pilot.start_us, &pilot.connect_us,
                          &pilot.end_us, &pilot.idle_since_us, &pilot.unneeded_since_us,
                          &pilot.lost_since_us, &pilot.drain_us, &pilot.cancel_us}) {
        begin_at_last(*us);
      }
    }
  }
}

absl::Status SetProvider(State& state, const ProviderSpec& spec, bool is_other_request) {
  TY_RETURN_IF_ERROR(CheckProviderSpec(spec));
  const auto [found, is_new] = state.providers.try_emplace(spec.name);
  Provider& provider = found->second;
  if (is_new) provider.reached_us = state.now_us;
  if (!is_new && (is_other_request || AreOtherPilots(provider.spec, spec))) {
    provider.generation += 1;
    provider.unused_pilots = 0;
  }
  provider.spec = spec;
  provider.is_removing = false;
  return absl::OkStatus();
}

absl::Status PauseProvider(State& state, const std::string& name, std::string reason) {
  TY_ASSIGN_OR_RETURN(Provider * provider, Find(state, name));
  provider->is_paused = true;
  provider->pause_reason = std::move(reason);
  return absl::OkStatus();
}

absl::Status ResumeProvider(State& state, const std::string& name) {
  TY_ASSIGN_OR_RETURN(Provider * provider, Find(state, name));
  provider->is_paused = false;
  provider->pause_reason.clear();
  provider->breaker = Breaker();
  provider->unused_pilots = 0;
  return absl::OkStatus();
}

absl::Status RemoveProvider(State& state, const std::string& name) {
  TY_ASSIGN_OR_RETURN(Provider * provider, Find(state, name));
  provider->is_removing = true;
  return absl::OkStatus();
}

absl::Status ForgetProvider(State& state, const std::string& name) {
  TY_ASSIGN_OR_RETURN(Provider * provider, Find(state, name));
  provider->is_removing = true;
  for (auto& [number, pilot] : provider->pilots) {
    if (!IsLive(pilot)) continue;
    pilot.state = PilotState::kEnded;
    pilot.end_us = state.now_us;
    pilot.reason = "its provider was forgotten";
  }
  return absl::OkStatus();
}

absl::Status CancelPilot(State& state, const std::string& provider_name, int64_t number,
                         std::string reason) {
  TY_ASSIGN_OR_RETURN(Provider * provider, Find(state, provider_name));
  const auto found = provider->pilots.find(number);
  if (found == provider->pilots.end() || !IsLive(found->second)) {
    return error::PilotNotFound(provider_name, number);
  }
  BeginEnding(found->second, std::move(reason));
  return absl::OkStatus();
}

}  // namespace trainyard::provision

namespace trainyard::error {

absl::Status ProviderNotFound(const std::string& name) {
  return MakeError(absl::StatusCode::kNotFound, "PROVIDER_NOT_FOUND",
                   absl::StrCat("there is no provider '", name, "'"));
}

absl::Status PilotNotFound(const std::string& provider, int64_t number) {
  return MakeError(
      absl::StatusCode::kNotFound, "PILOT_NOT_FOUND",
      absl::StrCat("provider '", provider, "' has no pilot ", number, " that has not ended"));
}

}  // namespace trainyard::error
