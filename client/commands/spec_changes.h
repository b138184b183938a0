// Changes of a spec from the command line: --set, --devices, --batch, --elastic, --priority,
// --project and --name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/flags.h"

namespace trainyard::commands {

// The most devices that a flag may ask for.
inline constexpr int kDevicesMax = 4096;

// The flags that change a spec; each verb declares those that it has.
struct SpecFlags {
  std::vector<std::string> set;  // "PATH=VALUE"
  int devices = 0;               // 0: as the spec says
  int64_t batch = 0;             // 0: as the spec says
  std::string elastic;           // "2-8"
  std::optional<int> priority;
  std::string project;
  std::string name;
};

struct Change {
  std::string path;
  // JSON or a bare word; empty to unset the field.
  std::string value;
};

// Returns the changes in the order in which they apply. INVALID_ARGUMENT for a flag whose value
// cannot be read.
absl::StatusOr<std::vector<Change>> ChangesOf(const SpecFlags& flags);

}  // namespace trainyard::commands
