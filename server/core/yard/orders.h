// The orders of workers, and the attempts that hold their devices. Both are functions of the state
// alone, so that nothing has to be replayed after a crash.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/core/yard/state.h"

namespace trainyard::core {

// By attempt. What is not listed must be stopped and removed.
std::vector<DesiredAttempt> DesiredFor(const YardState& state, const std::string& worker);

// A device is held while the server counts on ranks there, and while the worker still sees some,
// whatever the server thinks of them. By device.
std::map<std::string, AttemptId> HoldersOn(const YardState& state, const std::string& worker);

// True where the worker runs something of which nobody knows which devices it uses.
bool RunsUnknown(const Snapshot& snapshot, const Contact& contact);

}  // namespace trainyard::core
