// A spec from a file with the changes of the command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"
#include "client/commands/spec_changes.h"
#include "client/spec_loader/spec_file.h"

namespace trainyard::commands {

// Applies the changes and checks all rules; mistakes are added to `file`. The paths that were
// changed, whose mistakes are the command line's.
absl::StatusOr<std::vector<std::string>> ApplyChanges(const SpecFlags& flags,
                                                      spec_loader::SpecFile& file);

// All mistakes with their places, and what follows from them: "nothing was submitted".
Result TellMistakes(const Context& context, const spec_loader::SpecFile& file,
                    absl::string_view consequence);

}  // namespace trainyard::commands
