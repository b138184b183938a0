// Says what `trainyard doctor` looks at on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/commands/context.h"
#include "client/doctor/finding.h"
#include "client/doctor/judge.h"

namespace trainyard::commands {

// A part of the machine.
struct DoctorSection {
  std::string title;
  // Looks at it. The function holds copies of all that it needs, because nobody waits for it if a
  // file system hangs.
  std::function<doctor::Findings()> look;
};

// Returns the sections of this machine. `state_dir` is that of `trainyard up`, or empty for the
// default.
std::vector<DoctorSection> DoctorSections(const Context& context, const std::string& state_dir);

// Asks the server that commands go to. It takes as long as that needs to answer, and ssh may ask
// the user for a password.
doctor::ServerFacts AskServer(const Context& context);

}  // namespace trainyard::commands
