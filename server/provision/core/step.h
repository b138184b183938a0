// Computes a turn of the provisioner: what has happened is taken over, and what to do is decided.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/provision/core/inputs.h"
#include "server/provision/core/state.h"

namespace trainyard::provision {

// A record of a pilot that has ended is kept for people for so long.
inline constexpr int64_t kKeepEndedUs = kHourUs;

// Takes the inputs over and returns what to do. A caller steps a copy of the state, makes the copy
// durable, and only then carries the decisions out. It may die at any moment in between:
//
// - kSubmit is never repeated. A pilot whose submission was not carried out is declared lost once a
//   complete listing lacks it, and its number is never used again.
// - All other orders follow from the state, and are repeated until what they want is seen.
//
// The result of each kSubmit that was carried out goes into the inputs of the next turn. If a turn
// could not be made durable, its decisions must be dropped.
std::vector<Decision> Step(State& state, const Inputs& inputs);

// Tells the state that the process has begun anew: workers get time to connect again, and nothing
// is asked for until a new listing has shown what there is. The state may be older than that, and
// its times may lie in the future of `now_us` if the clock has been set back.
void WakeUp(State& state, int64_t now_us);

// These are what people ask for. They change the state, and the next turn acts on it.

// Adds a provider, or changes the spec of one. Its pilots stay as they were asked for, but they no
// longer count as supply if new ones would be different: by the spec, or by what the caller knows
// of the request (`is_other_request`). Returns what CheckProviderSpec returns.
absl::Status SetProvider(State& state, const ProviderSpec& spec, bool is_other_request = false);
// The others return NOT_FOUND (PROVIDER_NOT_FOUND).
absl::Status PauseProvider(State& state, const std::string& name, std::string reason);
// Ends a pause, also that of the breaker.
absl::Status ResumeProvider(State& state, const std::string& name);
// Cancels what waits, drains what is idle, and leaves what is busy until its work is done.
absl::Status RemoveProvider(State& state, const std::string& name);
// Removes a provider at once, whatever its pilots do, for a cluster that will not answer any more.
// If the same cluster is ever asked again under our names, it shows what still runs there, and that
// is cancelled.
absl::Status ForgetProvider(State& state, const std::string& name);
// Returns NOT_FOUND (PILOT_NOT_FOUND) too. The pilot is cancelled even if it is busy.
absl::Status CancelPilot(State& state, const std::string& provider, int64_t number,
                         std::string reason);

}  // namespace trainyard::provision

namespace trainyard::error {

// PROVIDER_NOT_FOUND: `trainyard providers ls` lists them.
absl::Status ProviderNotFound(const std::string& name);
// PILOT_NOT_FOUND: `trainyard providers show` lists those of a provider.
absl::Status PilotNotFound(const std::string& provider, int64_t number);

}  // namespace trainyard::error
