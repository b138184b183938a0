// Lets a program go on while the disk is full.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace trainyard {

// Returns true for DISK_FULL, the error of full file systems and of used-up quotas.
bool IsDiskFull(const absl::Status& status);

// Sets space for `bytes` bytes aside in `path`.reserve. While the disk is full, WriteFileAtomically
// and ReplaceFile write `path` there, as safely as otherwise: once if the file does not exist yet,
// else as often as they are called.
absl::Status ReserveSpace(const std::string& path, int64_t bytes);

}  // namespace trainyard
