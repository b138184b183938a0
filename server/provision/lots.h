// Groups what waiting jobs would use of providers into parts that do not overlap.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "server/provision/core/inputs.h"

namespace trainyard::provision {

// The possible workers of one provider that a pass would use: their numbers, by job.
struct Wanted {
  std::string provider;
  int32_t nodes = 1;  // workers of a pilot; those of a pilot have adjacent numbers
  std::map<JobId, std::set<int32_t>> workers;
};

// Returns the lots in the order of the queue. Jobs that share a pilot of the provider that comes
// first are in the same lot. Each provider tells how many pilots of its own the jobs of a lot would
// use; one that could not take all of them is left out.
std::vector<Lot> LotsOf(const std::vector<Wanted>& wanted);

}  // namespace trainyard::provision
