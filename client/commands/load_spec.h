// Applies the changes of the command line to a spec from a file, and tells its mistakes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"
#include "client/commands/spec_changes.h"
#include "client/spec_loader/spec_file.h"

namespace trainyard::commands {

// Applies the changes and checks all rules; mistakes are added to `file`. Returns the paths that
// were changed: mistakes at these are the command line's, and not the file's.
absl::StatusOr<std::vector<std::string>> ApplyChanges(const SpecFlags& flags,
                                                      spec_loader::SpecFile& file);

// Tells all mistakes with their places, and the consequence: "nothing was submitted".
Result TellMistakes(const Context& context, const spec_loader::SpecFile& file,
                    absl::string_view consequence);

}  // namespace trainyard::commands
