// Makes a spec from a command of the user's own, as in `trainyard run -- python3 train.py`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
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

// Returns "to run a program, write `trainyard run -- python3 train.py`" if the words, which follow
// `verb` and stand where a spec is wanted, are those of a program: a script, by its ending or its
// first line, or an interpreter with more words. Returns an empty text for all others.
std::string ProgramAdvice(absl::string_view verb, const std::vector<std::string>& words);
// Returns that text with the words as they are.
std::string ProgramAdvice(absl::string_view verb, const std::vector<std::string>& words,
                          size_t command);

}  // namespace trainyard::commands
