// Reads files of data sets, into whose folders others may write. A file may be a link, since data
// sets are often links into a pool, but it must be a file: on a FIFO, a rank would wait for ever.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard::data {

// Opens a file for reading. Returns FAILED_PRECONDITION (NOT_A_REGULAR_FILE) for a FIFO, a device
// or a folder, and for a link to one.
absl::StatusOr<UniqueFd> OpenDataFile(const std::string& path);

// Returns the whole file, or RESOURCE_EXHAUSTED if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadDataFile(const std::string& path, int64_t max_bytes);
// Returns at most `max_bytes` from `offset`. The result is shorter at the end of the file.
absl::StatusOr<std::string> ReadDataRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes);

}  // namespace trainyard::data
