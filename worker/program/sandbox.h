// Makes the command that runs a program in a sandbox of bubblewrap.
#pragma once

#include <string>
#include <vector>

#include "worker/program/mounts.h"

namespace trainyard::program {

// Returns the words. `bubblewrap` is the path of bwrap, `self` that of this program, which becomes
// the user's inside (become.h), and `mark` the file that it makes then.
std::vector<std::string> SandboxWords(const std::string& bubblewrap, const std::string& self,
                                      const std::string& mark, const Mounts& mounts,
                                      const std::vector<std::string>& command);

}  // namespace trainyard::program
