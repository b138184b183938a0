// Takes over what has happened to the pilots of one provider.
#pragma once

#include <vector>

#include "server/provision/core/inputs.h"
#include "server/provision/core/state.h"

namespace trainyard::provision {

// A submission whose reply is lost may reach the provider this long after it was decided: the call
// itself is killed after half a minute, and a busy controller answers what is in its queue later. A
// pilot that a complete listing lacks afterwards is lost.
inline constexpr int64_t kSubmissionSettlesUs = 3 * kMinuteUs;
// A cancellation is repeated this often until the allocation is gone.
inline constexpr int64_t kCancelEveryUs = 30 * kSecondUs;

// Takes over outcomes of submissions, and then a listing, for a provider of `state`. Adopts what is
// found by its name. Orders the cancellation of what is ours and has no right to be there: unknown
// pilots, second allocations of the same pilot, and those that had ended for us.
void ObserveProvider(State& state, Provider& provider, const ProviderNews& news,
                     std::vector<Decision>& decisions);

// Takes over which workers are connected.
void ObserveWorkers(Provider& provider, const std::vector<WorkerSight>& workers, int64_t now_us,
                    std::vector<Decision>& decisions);

// Ends the patience with pilots that do not connect, or whose workers are not heard any more. No
// silence from before `awake_us` counts, because this server may not have listened.
void ObserveTime(Provider& provider, int64_t now_us, int64_t awake_us,
                 std::vector<Decision>& decisions);

// Decides that a pilot ends, for a reason that people read. The orders follow from its state.
void BeginEnding(Pilot& pilot, std::string reason);

}  // namespace trainyard::provision
