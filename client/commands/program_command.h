// Makes a spec from a command of the user's own, as in `trainyard run -- python3 train.py`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/spec_loader/spec_text.h"

namespace trainyard::commands {

// Returns the spec of a job that runs these words in the present folder and in the environment of
// Python that is active there. `variables` are those of --env: "NAME=VALUE", or "NAME" for the
// value that the client has itself. Returns INVALID_ARGUMENT for a variable that is not set, and
// the errors of the system if the present folder is gone.
absl::StatusOr<spec_loader::SpecText> SpecOfCommand(const Context& context,
                                                    const std::vector<std::string>& words,
                                                    const std::vector<std::string>& variables,
                                                    const std::string& code = "");

}  // namespace trainyard::commands
