// Says at submission what can never run. A submission that no set of known devices could hold would
// wait for ever, and its user would learn that only by asking why.
#pragma once

#include "absl/status/status.h"
#include "server/core/yard/state.h"

namespace trainyard::core {

// Returns CANNOT_RUN, with the numbers and what to change, if the devices of all known workers
// together could not hold the job even if all of them were free, or if the reservation on which it
// is to run does not exist or is not for its owner. A worker is known if it has ever joined: it may
// be away, cordoned or gone at the moment. Those that providers could bring are known as well.
// Nothing is refused while no worker has joined, because nobody knows then what the pool will have.
absl::Status CheckCanRun(const YardState& state, const Submission& submission);

}  // namespace trainyard::core
