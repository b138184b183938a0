// Finds the folder of the running program, and the folder where programs keep their state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the folder of the running program without a slash at its end, or an empty text if the
// system does not know it. The other programs of an installation lie beside it.
std::string ProgramFolder();
// Returns the path of another program of this installation, even if there is no such program.
std::string SiblingProgram(absl::string_view name);
// Returns the path of a program in the folder of an installation, or NOT_FOUND if it is not there.
absl::StatusOr<std::string> FindProgram(absl::string_view folder, absl::string_view name);

// Returns $XDG_STATE_HOME/trainyard, or ~/.local/state/trainyard if that variable is empty. It
// takes the values of XDG_STATE_HOME and HOME, since only mains read the environment.
std::string StateHome(absl::string_view xdg_state_home, absl::string_view home);

}  // namespace trainyard
