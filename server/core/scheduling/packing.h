// Which free slots a gang gets.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// How many slots, of what, and how they lie.
struct GangDemand {
  int32_t least = 1;
  int32_t most = 1;
  bool mixed = false;
  bool spread = false;
};

// The largest gang that the offer holds now, up to `most`: what counts is what is free, so no slot
// is looked at. 0 where it does not hold `least`.
int32_t LargestGang(const Slots& slots, const Offer& offer, const GangDemand& gang);

// Whether devices of the offered classes could hold `least` if all of them were free.
bool CouldHold(const Slots& slots, const Offer& offer, const GangDemand& gang);

// The slots of a gang in order of rank, as many as `most` allows; empty where not even `least` are
// free. Packed: on the island that it fills best, else on the worker that it fills best, else on as
// few workers as possible. Spread: evenly over as many workers as possible. The ranks of a worker
// follow each other. Of one type unless mixed: of the type on which most fit, then on which the
// gang spans the fewest workers.
std::vector<int32_t> PickSlots(const Slots& slots, const Offer& offer, const GangDemand& gang);

// The ranks on these slots.
std::vector<RankPlacement> RanksOn(const Slots& slots, const Pool& pool,
                                   const std::vector<int32_t>& picked);

}  // namespace trainyard::core
