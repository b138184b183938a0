// Applies the changes of the command line to a spec from a file, and prints its mistakes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"
#include "client/commands/spec_changes.h"
#include "client/spec_loader/spec_file.h"

namespace trainyard::commands {

// Read specs as the functions of spec_loader do, and from bundles (bundle_spec.h). A word that is
// no file, but has the form of a name in the catalogue, is fetched from there. Ctrl-C ends the
// program while it reads, because a pipe, or a file system of the network, may never answer.
absl::StatusOr<spec_loader::SpecFile> ReadSpec(const Context& context, const std::string& path);
absl::StatusOr<std::vector<spec_loader::SpecText>> ReadSpecs(const Context& context,
                                                             const std::string& path);

// Applies the changes and checks all rules; mistakes are added to `file`. Returns the paths that
// were changed: a mistake at one of them comes from the command line, and not from the file.
absl::StatusOr<std::vector<std::string>> ApplyChanges(const SpecFlags& flags,
                                                      spec_loader::SpecFile& file);

// Prints all mistakes with their places, and the consequence: "nothing was submitted".
Result TellMistakes(const Context& context, const spec_loader::SpecFile& file,
                    absl::string_view consequence);

}  // namespace trainyard::commands
