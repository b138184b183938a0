// Finds the folder of the running program, and the folder where programs keep their state.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the folder of the running program without a slash at its end, or an empty text if the
// system does not know it. The other programs lie beside it, as after a build, or in
// ../libexec/trainyard from there, as in an installation.
std::string ProgramFolder();
// Returns the path of another program of this installation. If there is no such program, that is
// the path beside this one.
std::string SiblingProgram(absl::string_view name);
// Returns the path of a program, where `folder` is that of a program that people start. Returns
// NOT_FOUND if it is neither there nor in ../libexec/trainyard from there.
absl::StatusOr<std::string> FindProgram(absl::string_view folder, absl::string_view name);

// Returns $XDG_STATE_HOME/trainyard, or ~/.local/state/trainyard if that variable is empty. It
// takes the values of XDG_STATE_HOME and HOME, since only mains read the environment.
std::string StateHome(absl::string_view xdg_state_home, absl::string_view home);

}  // namespace trainyard
