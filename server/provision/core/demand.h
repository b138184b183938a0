// Decides which pilots the demand needs, which more it wants, and which have to go.
#pragma once

#include <cstdint>
#include <vector>

#include "server/provision/core/inputs.h"
#include "server/provision/core/state.h"

namespace trainyard::provision {

// A listing that is older than this says too little to ask for more pilots.
inline constexpr int64_t kListingAgeMaxUs = 2 * kMinuteUs;
// So many pilots in a row that came and had no work are taken for chance. After that, the next one
// is asked for after a pause, which doubles.
inline constexpr int32_t kUnusedPilotsMax = 3;
// The longest time between two submissions after some were refused.
inline constexpr int64_t kSubmitIntervalMaxUs = 10 * kMinuteUs;

// Every lot is given to one provider, the first in the order of preference that can serve it, and
// first of all to one whose pilots are on their way already. A provider may serve a lot slowly,
// because of its backlog or its rate, and keeps it. Only if its pilots have waited for
// ProviderSpec::overflow_us, a lot may go to the next provider as well; what waits and is then not
// needed is cancelled after ProviderSpec::idle_us.
//
// Asks for pilots (at most one of a provider in a turn), drains pilots that have long been idle,
// and begins the end of requests that have long been unneeded, but never below the minimum.
void ServeDemand(State& state, const std::vector<Lot>& demand, std::vector<Decision>& decisions);

}  // namespace trainyard::provision
