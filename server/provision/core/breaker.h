// Pauses a provider that fails again and again.
#pragma once

#include <string>
#include <vector>

#include "server/provision/core/inputs.h"
#include "server/provision/core/state.h"

namespace trainyard::provision {

// A cluster that refuses a request once may be busy, so this takes some patience; a pilot that
// starts and does not connect costs an allocation each time, so this takes less.
inline constexpr int32_t kFailedSubmissionsMax = 10;
inline constexpr int32_t kFailedStartsMax = 3;
// The first pause, and the longest: each failed probe doubles it.
inline constexpr int64_t kPauseFirstUs = kMinuteUs;
inline constexpr int64_t kPauseMaxUs = kHourUs;

// Notes a failure of a pilot. A failure of a probe opens the breaker at once; what was asked for
// earlier says nothing new while the breaker is not closed.
void NoteFailedSubmission(Provider& provider, const Pilot& pilot, int64_t now_us,
                          std::vector<Decision>& decisions);
void NoteFailedStart(Provider& provider, const Pilot& pilot, int64_t now_us,
                     std::vector<Decision>& decisions);
// Notes that the provider took a submission.
void NoteAccepted(Provider& provider);
// Notes that a worker has connected, which closes the breaker.
void NoteConnected(Provider& provider, const Pilot& pilot, std::vector<Decision>& decisions);
// Half-opens the breaker if its pause is over.
void NoteTime(const State& state, Provider& provider, std::vector<Decision>& decisions);

// Returns true if the breaker lets another pilot through. While it is half-open, only one probe may
// be on its way.
bool PermitsSubmission(const Provider& provider);

}  // namespace trainyard::provision
