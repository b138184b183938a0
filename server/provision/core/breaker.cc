// Counts failures in a row, and doubles the pause with each failed probe.
#include "server/provision/core/breaker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::provision {
namespace {

void Open(Provider& provider, int64_t now_us, std::string reason,
          std::vector<Decision>& decisions) {
  Breaker& breaker = provider.breaker;
  int64_t pause_us = kPauseFirstUs;
  for (int32_t i = 0; i < breaker.trips && pause_us < kPauseMaxUs; ++i) pause_us *= 2;
  breaker.state = Breaker::State::kOpen;
  breaker.failed_submissions = 0;
  breaker.failed_starts = 0;
  breaker.trips += 1;
  breaker.until_us = now_us + std::min(pause_us, kPauseMaxUs);
  breaker.reason = reason;
  decisions.push_back(
      {DecisionKind::kBreakerOpened, provider.spec.name, "", "", std::move(reason)});
}

void NoteFailure(Provider& provider, const Pilot& pilot, int64_t now_us, int32_t& count,
                 int32_t max, const char* what, std::vector<Decision>& decisions) {
  Breaker& breaker = provider.breaker;
  if (breaker.state == Breaker::State::kOpen) return;
  if (breaker.state == Breaker::State::kHalfOpen) {
    if (pilot.number < breaker.first_probe) return;
    Open(provider, now_us, absl::StrCat("the probe ", pilot.name, " failed: ", pilot.reason),
         decisions);
    return;
  }
  count += 1;
  breaker.reason = pilot.reason;
  if (count < max) return;
  Open(provider, now_us,
       absl::StrCat(count, " ", what, " failed in a row, the last one: ", pilot.reason), decisions);
}

}  // namespace

void NoteFailedSubmission(Provider& provider, const Pilot& pilot, int64_t now_us,
                          std::vector<Decision>& decisions) {
  NoteFailure(provider, pilot, now_us, provider.breaker.failed_submissions, kFailedSubmissionsMax,
              "submissions", decisions);
}

void NoteFailedStart(Provider& provider, const Pilot& pilot, int64_t now_us,
                     std::vector<Decision>& decisions) {
  NoteFailure(provider, pilot, now_us, provider.breaker.failed_starts, kFailedStartsMax, "starts",
              decisions);
}

void NoteAccepted(Provider& provider) {
  provider.breaker.failed_submissions = 0;
}

void NoteConnected(Provider& provider, const Pilot& pilot, std::vector<Decision>& decisions) {
  const bool was_closed = provider.breaker.state == Breaker::State::kClosed;
  provider.breaker = Breaker();
  provider.proven_generation = std::max(provider.proven_generation, pilot.generation);
  if (was_closed) return;
  decisions.push_back({DecisionKind::kBreakerClosed, provider.spec.name, "", "",
                       absl::StrCat("a worker of ", pilot.name, " has connected")});
}

void NoteTime(const State& state, Provider& provider, std::vector<Decision>& decisions) {
  Breaker& breaker = provider.breaker;
  if (breaker.state != Breaker::State::kOpen || state.now_us < breaker.until_us) return;
  breaker.state = Breaker::State::kHalfOpen;
  breaker.first_probe = state.next_number;
  decisions.push_back({DecisionKind::kBreakerHalfOpened, provider.spec.name, "", "",
                       absl::StrCat("one pilot is tried after: ", breaker.reason)});
}

bool PermitsSubmission(const Provider& provider) {
  const Breaker& breaker = provider.breaker;
  if (breaker.state == Breaker::State::kClosed) return true;
  if (breaker.state == Breaker::State::kOpen) return false;
  for (const auto& [number, pilot] : provider.pilots) {
    if (number >= breaker.first_probe && IsLive(pilot)) return false;
  }
  return true;
}

}  // namespace trainyard::provision
