// Defines what a gang asks of the free slots.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "server/core/scheduling/slots.h"

namespace trainyard::core {

// The number of slots that a gang wants, and how they are to lie.
struct GangDemand {
  int32_t least = 1;
  int32_t most = 1;
  bool mixed = false;
  bool spread = false;
  HostAmount resources = {};  // of each rank
  bool is_deviceless = false;
  // The reservations whose devices the job may use, and the classes whose kept slots are lent to
  // it, even where it wants no such slot; null for none. They are borrowed.
  const std::set<std::string>* reservations = nullptr;
  const Offer* lent = nullptr;
  bool one_host = false;  // all ranks have to be on one worker
};

}  // namespace trainyard::core
