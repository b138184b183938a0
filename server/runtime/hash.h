// Content hashes as the API writes them: "xxh3-128:" and 32 hex digits.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::runtime {

std::string ContentHash(absl::string_view bytes);
// Reads the file once, in blocks.
absl::StatusOr<std::string> FileHash(const std::string& path);
// The 32 lower-case hex digits of a well-formed hash; INVALID_ARGUMENT otherwise. They are safe as
// a file name.
absl::StatusOr<std::string> HashDigits(absl::string_view hash);

}  // namespace trainyard::runtime
