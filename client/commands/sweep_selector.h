// Finds sweeps by the names that people use: 3, sweeps/3 and last.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/link/server_link.h"

namespace trainyard::commands {

// The help text of a word that names a sweep.
inline constexpr char kSweepHelp[] = "A sweep: 3, sweeps/3, or last";

// Returns the full name of a sweep. Only `last` asks the server. Returns INVALID_ARGUMENT for a
// word that names no sweep, and NOT_FOUND if there is none.
absl::StatusOr<std::string> ResolveSweep(link::ServerLink& link, const std::string& word);

// Returns the sweep with its trials, and with its decisions behind the sequence `decisions_after`
// if that is given.
absl::StatusOr<v1::Sweep> FetchSweep(link::ServerLink& link, const std::string& name,
                                     std::optional<int64_t> decisions_after = {});

// Returns at most `limit` sweeps with the best trial of each, the newest first. `has_more` says
// whether there are more.
absl::StatusOr<std::vector<v1::Sweep>> FetchSweeps(link::ServerLink& link, const std::string& user,
                                                   int limit, bool& has_more);

}  // namespace trainyard::commands
