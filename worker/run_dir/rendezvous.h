// Reads and writes rendezvous/<key>: small values by which the ranks of a gang find each other.
// Each key is written once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

inline constexpr int kMaxRendezvousKey = 200;
inline constexpr int64_t kMaxRendezvousValue = 64 << 10;

// Returns INVALID_ARGUMENT if `key` is not [A-Za-z0-9_.-]{1,200}, or is "." or "..", or looks like
// a temporary name.
absl::Status CheckRendezvousKey(absl::string_view key);

// Returns OK if the key holds this value already, and ALREADY_EXISTS if it holds another.
absl::Status SetRendezvousKey(const RunDir& dir, absl::string_view key, absl::string_view value);
// Returns NOT_FOUND if nobody has written it yet.
absl::StatusOr<std::string> GetRendezvousKey(const RunDir& dir, absl::string_view key);
// Returns the sorted keys, or none if the folder does not exist.
absl::StatusOr<std::vector<std::string>> ListRendezvousKeys(const RunDir& dir);

}  // namespace trainyard::run_dir
