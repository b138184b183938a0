// Notes in the state directory that a backup was made, for the metrics of the server.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::backup {

inline constexpr char kSnapshotStamp[] = "snapshot";
inline constexpr char kContinuousStamp[] = "continuous";

// Sets the time of the file `state_dir`/backups/`kind` to now. A stamp that cannot be written stays
// as old as it is, which an alert tells.
void Stamp(const std::string& state_dir, absl::string_view kind);

}  // namespace trainyard::backup
