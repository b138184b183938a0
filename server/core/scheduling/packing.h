// Chooses the free slots that a gang gets.
#pragma once

#include <cstdint>
#include <vector>

#include "server/core/scheduling/gang_demand.h"
#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// Returns the size of the largest gang that the free slots of the offer hold, up to `most`, or 0 if
// they do not hold `least`. It reads only counts, and no slots.
int32_t LargestGang(const Slots& slots, const Offer& offer, const GangDemand& gang);

// Returns the most free slots that one worker offers to a gang, whatever is left of its host.
int32_t MostFreeOnOneWorker(const Slots& slots, const Offer& offer, bool mixed);

// Returns true if the offered classes could hold `least` devices if all of them were free.
bool CouldHold(const Slots& slots, const Offer& offer, const GangDemand& gang);

// Returns the slots of a gang in order of rank, as many as `most` allows, or none if not even
// `least` are free. The ranks of a worker follow each other.
//   packed   on the island that the gang fills best, else on the worker that it fills best, else on
//            as few workers as possible
//   spread   evenly over as many workers as possible
//   unmixed  of the type of which most fit; of equal ones, where it spans the fewest workers
//   one host on one worker, or none
std::vector<int32_t> PickSlots(const Slots& slots, const Offer& offer, const GangDemand& gang);

// Returns the ranks on these slots.
std::vector<RankPlacement> RanksOn(const Slots& slots, const Pool& pool,
                                   const std::vector<int32_t>& picked, const HostAmount& resources);

}  // namespace trainyard::core
