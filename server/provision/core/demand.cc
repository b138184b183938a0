// Fills the providers with lots, and compares the result with the pilots that there are.
#include "server/provision/core/demand.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "server/provision/core/breaker.h"
#include "server/provision/core/observe.h"

namespace trainyard::provision {
namespace {

// The room that a provider has for lots in this turn.
struct Supply {
  Provider* provider = nullptr;
  int32_t fresh = 0;   // pilots on their way that no lot has been given yet
  int32_t stuck = 0;   // such pilots that have waited too long
  int32_t room = 0;    // pilots that could be asked for, now or a little later
  int32_t used = 0;    // pilots on their way that lots have been given
  int32_t wanted = 0;  // pilots to ask for
  bool is_stuck = false;
};

// The limits that hold for a provider: one that is being removed wants nothing.
int32_t LeastOf(const Provider& provider) {
  return provider.is_removing ? 0 : provider.spec.min_pilots;
}
int32_t MostOf(const Provider& provider) {
  return provider.is_removing ? 0 : provider.spec.max_pilots;
}

bool IsStuck(const Provider& provider, const Pilot& pilot, int64_t now_us) {
  return IsWaiting(pilot) && now_us - pilot.create_us >= provider.spec.overflow_us;
}

// Returns true if the pilot will be what the spec now says.
bool IsSupply(const Provider& provider, const Pilot& pilot) {
  return IsComing(pilot) && pilot.generation == provider.generation;
}

Supply SupplyOf(Provider& provider, int64_t now_us) {
  Supply supply;
  supply.provider = &provider;
  for (const auto& [number, pilot] : provider.pilots) {
    if (!IsSupply(provider, pilot) || provider.is_removing) continue;
    (IsStuck(provider, pilot, now_us) ? supply.stuck : supply.fresh) += 1;
  }
  supply.is_stuck = supply.stuck > 0;
  // Nobody knows when a provider that has not answered for long will answer again.
  const bool is_reached = now_us - provider.reached_us < provider.spec.overflow_us;
  const bool can_grow = is_reached && !provider.is_paused && !provider.is_removing &&
                        provider.breaker.state != Breaker::State::kOpen;
  if (can_grow) supply.room = std::max(0, MostOf(provider) - CountLive(provider));
  return supply;
}

// Gives a lot to a provider if the counts suffice.
bool Give(Supply& supply, int32_t pilots, bool from_stuck, bool from_room) {
  const int32_t fresh = std::min(pilots, supply.fresh);
  int32_t left = pilots - fresh;
  const int32_t stuck = from_stuck ? std::min(left, supply.stuck) : 0;
  left -= stuck;
  if (left > (from_room ? supply.room : 0)) return false;
  supply.fresh -= fresh;
  supply.stuck -= stuck;
  supply.room -= left;
  supply.used += fresh + stuck;
  supply.wanted += left;
  return true;
}

void GiveLot(const Lot& lot, std::vector<Supply>& supplies) {
  const auto try_all = [&](bool from_stuck, bool from_room, bool skip_stuck) {
    for (Supply& supply : supplies) {
      const auto pilots = lot.pilots.find(supply.provider->spec.name);
      if (pilots == lot.pilots.end() || pilots->second < 1) continue;
      if (skip_stuck && supply.is_stuck) continue;
      if (Give(supply, pilots->second, from_stuck, from_room)) return true;
    }
    return false;
  };
  (void)(try_all(false, false, false) || try_all(false, true, true) || try_all(true, true, false));
}

int64_t SubmitIntervalOf(const Provider& provider) {
  int64_t interval_us = provider.spec.submit_interval_us;
  for (int32_t i = 0; i < provider.breaker.failed_submissions; ++i) {
    interval_us = std::min(2 * std::max(interval_us, kSecondUs), kSubmitIntervalMaxUs);
  }
  // Jobs may not fit on what the pilots bring, which nobody knows before they come.
  int64_t pause_us = 0;
  for (int32_t i = kUnusedPilotsMax; i <= provider.unused_pilots && pause_us < kPauseMaxUs; ++i) {
    pause_us = pause_us == 0 ? kPauseFirstUs : 2 * pause_us;
  }
  return std::max({interval_us, pause_us, provider.spec.submit_interval_us});
}

bool MaySubmit(const Provider& provider, int64_t now_us) {
  const int32_t live = CountLive(provider);
  if (provider.is_paused || provider.is_removing || !PermitsSubmission(provider)) return false;
  if (live >= MostOf(provider)) return false;
  if (!provider.listing_failure.empty() || provider.listing_us == 0) return false;
  if (now_us - provider.listing_us > kListingAgeMaxUs) return false;
  if (provider.last_submit_us != 0 &&
      now_us - provider.last_submit_us < SubmitIntervalOf(provider)) {
    return false;
  }
  int32_t waiting = 0;
  int32_t unproven = provider.strangers;
  for (const auto& [number, pilot] : provider.pilots) {
    waiting += IsWaiting(pilot) ? 1 : 0;
    unproven += IsLive(pilot) && pilot.generation == provider.generation ? 1 : 0;
  }
  // The first pilot of a provider is a probe, and others wait for what becomes of it.
  const bool is_proven = provider.proven_generation == provider.generation;
  return waiting < provider.spec.backlog && (is_proven || unproven == 0);
}

void Submit(State& state, Provider& provider, std::vector<Decision>& decisions) {
  Pilot pilot;
  pilot.number = state.next_number++;
  pilot.generation = provider.generation;
  pilot.name = PilotName(state.server_id, provider.spec.name, pilot.number);
  pilot.create_us = state.now_us;
  provider.last_submit_us = state.now_us;
  decisions.push_back({DecisionKind::kSubmit, provider.spec.name, pilot.name, "", ""});
  provider.pilots.emplace(pilot.number, std::move(pilot));
}

// Marks the requests that no lot needs, the least advanced first, and begins the end of those that
// have been unneeded for long. Returns how many pilots are left beyond the minimum.
int32_t EndUnneeded(Provider& provider, int32_t needed, int32_t spare, bool is_over,
                    int64_t now_us) {
  // The most advanced requests serve the demand; of equal ones the oldest.
  std::vector<Pilot*> coming;
  for (auto& [number, pilot] : provider.pilots) {
    if (IsComing(pilot)) coming.push_back(&pilot);
  }
  std::stable_sort(coming.begin(), coming.end(), [&](const Pilot* a, const Pilot* b) {
    const auto rank = [&](const Pilot* pilot) {
      return std::make_tuple(!IsSupply(provider, *pilot), -static_cast<int>(pilot->state));
    };
    return rank(a) < rank(b);
  });
  for (size_t i = coming.size(); i-- > 0;) {
    Pilot& pilot = *coming[i];
    const bool is_needed =
        static_cast<int32_t>(i) < needed && !is_over && IsSupply(provider, pilot);
    // A pilot that has begun to start soon connects, and is then idle like others.
    if (is_needed || spare <= 0 || !IsWaiting(pilot)) {
      pilot.unneeded_since_us = 0;
      continue;
    }
    spare -= 1;
    if (pilot.unneeded_since_us == 0) pilot.unneeded_since_us = now_us;
    if (is_over || now_us - pilot.unneeded_since_us >= provider.spec.idle_us) {
      BeginEnding(pilot, "nothing waits for it any more");
    }
  }
  return spare;
}

void DrainIdle(Provider& provider, int32_t spare, bool is_over, bool is_held, int64_t now_us,
               std::vector<Decision>& decisions) {
  std::vector<Pilot*> idle;
  for (auto& [number, pilot] : provider.pilots) {
    if (pilot.state != PilotState::kRunning) continue;
    if (pilot.drain_us != 0) {
      // The order may have been lost with the process that was to carry it out.
      spare -= 1;
      decisions.push_back({DecisionKind::kDrain, provider.spec.name, pilot.name, pilot.foreign_id,
                           "it had no work"});
      pilot.drain_us = now_us;
    } else if (pilot.idle_since_us != 0 &&
               (is_over || now_us - pilot.idle_since_us >= provider.spec.idle_us)) {
      idle.push_back(&pilot);
    }
  }
  if (is_held) return;
  std::stable_sort(idle.begin(), idle.end(), [](const Pilot* a, const Pilot* b) {
    return a->idle_since_us < b->idle_since_us;
  });
  for (Pilot* pilot : idle) {
    if (spare-- <= 0) return;
    pilot->drain_us = now_us;
    decisions.push_back({DecisionKind::kDrain, provider.spec.name, pilot->name, pilot->foreign_id,
                         "it had no work"});
  }
}

void Balance(State& state, const Supply& supply, std::vector<Decision>& decisions) {
  const int64_t now_us = state.now_us;
  Provider& provider = *supply.provider;
  int32_t staying = 0;
  for (const auto& [number, pilot] : provider.pilots) {
    staying += pilot.state < PilotState::kEnding ? 1 : 0;
  }
  const int32_t wanted = std::max(supply.wanted, LeastOf(provider) - staying);
  if (wanted > 0 && MaySubmit(provider, now_us)) {
    Submit(state, provider, decisions);
    staying += 1;
  }
  const bool is_over = staying > MostOf(provider);
  // While a gang gathers, those of it that have come wait for the others.
  const bool is_held = supply.used > 0 && !supply.is_stuck && !is_over;
  int32_t spare = staying - (is_over ? MostOf(provider) : LeastOf(provider));
  spare = EndUnneeded(provider, supply.used + wanted, spare, is_over, now_us);
  DrainIdle(provider, spare, is_over, is_held, now_us, decisions);
}

}  // namespace

void ServeDemand(State& state, const std::vector<Lot>& demand, std::vector<Decision>& decisions) {
  std::vector<Supply> supplies;
  for (auto& [name, provider] : state.providers) {
    supplies.push_back(SupplyOf(provider, state.now_us));
  }
  std::stable_sort(supplies.begin(), supplies.end(), [](const Supply& a, const Supply& b) {
    const ProviderSpec& x = a.provider->spec;
    const ProviderSpec& y = b.provider->spec;
    return std::tie(x.preference, x.cost_per_hour) < std::tie(y.preference, y.cost_per_hour);
  });
  for (const Lot& lot : demand) GiveLot(lot, supplies);
  for (const Supply& supply : supplies) Balance(state, supply, decisions);
}

}  // namespace trainyard::provision
