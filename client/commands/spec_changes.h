// --set, --devices, --batch, --elastic, --priority, --project and --name: changes of a spec from
// the command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/options.h"

namespace trainyard::commands {

struct Change {
  std::string path;
  // JSON or a bare word; empty to unset the field.
  std::string value;
};

// In the order in which they apply. INVALID_ARGUMENT for a flag whose value cannot be read.
absl::StatusOr<std::vector<Change>> ChangesOf(const Options& options);

}  // namespace trainyard::commands
