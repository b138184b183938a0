// Derives the orders of workers, and the attempts that hold their devices. Both are functions of
// only the state, so that nothing has to be replayed after a crash.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/core/yard/state.h"

namespace trainyard::core {

// Returns the orders by attempt. Attempts that are not listed must be stopped and removed.
std::vector<DesiredAttempt> DesiredFor(const YardState& state, const std::string& worker);

// Returns the holders by device. A device is held while the server counts on ranks there, and while
// the worker still reports some, whatever the server thinks of them.
std::map<std::string, AttemptId> HoldersOn(const YardState& state, const std::string& worker);
// Returns the ranks that hold a device, processors or memory of the worker, by attempt.
std::map<AttemptId, std::vector<RankPlacement>> RanksOn(const YardState& state,
                                                        const std::string& worker);

// Returns true if the worker runs something whose devices are unknown.
bool RunsUnknown(const Snapshot& snapshot, const std::string& worker, const Contact& contact);

}  // namespace trainyard::core
