// Reads the file that describes the pods of a provider.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainyard::commands {

// Returns the object of a YAML or JSON file as JSON. Words without quotes mean what they mean to
// kubectl: numbers, true and false, and nothing. The server judges what the object says.
absl::StatusOr<std::string> ReadPodFile(const std::string& path);

}  // namespace trainyard::commands
