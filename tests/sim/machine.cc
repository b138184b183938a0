// Implements the look-ups by which processes find the devices and run directories of a machine.
#include "tests/sim/machine.h"

namespace trainyard::sim {

MachineDevice* Machine::FindDevice(const std::string& device) {
  for (MachineDevice& candidate : devices) {
    if (candidate.name == device) return &candidate;
  }
  return nullptr;
}

RunDirectory* Machine::FindDirectory(AttemptId attempt) {
  const auto found = directories.find(attempt);
  return found == directories.end() ? nullptr : found->second.get();
}

}  // namespace trainyard::sim
