// Makes the command of a rank from the spec of its program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker/program/program_spec.h"

namespace trainyard::program {

// Replaces `{name}` by the value of the parameter of that name. Other braces stay.
std::string Substitute(absl::string_view word, const std::map<std::string, std::string>& params);

// Returns the text of the file that a script becomes: itself, or with /bin/sh as its interpreter.
std::string ScriptText(const std::string& script);

// Returns the words to execute. `script_path` is where the script lies, if there is one. If
// something prepares the environment, the words are those of a shell that does so, then makes the
// file `ready_path`, and becomes the program.
std::vector<std::string> CommandWords(const ProgramSpec& spec, const std::string& script_path,
                                      const std::string& ready_path);

// Returns true if a shell prepares the environment before the program begins.
bool HasPreparation(const ProgramSpec& spec);

}  // namespace trainyard::program
