// Makes a service of the user's own systemd out of `trainyard up`, so that it starts with the
// machine.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/commands/machine.h"

namespace trainyard::commands {

// The unit ~/.config/systemd/user/trainyard.service. There is one for each user.
class UserService {
 public:
  explicit UserService(const Context& context);

  // Returns true if the unit exists and is that of this state directory.
  bool IsOf(const Machine& machine) const;
  // Returns FAILED_PRECONDITION, with what to do instead, if no systemd runs for this user, or if
  // the unit is that of another state directory.
  absl::Status Check(const Machine& machine) const;
  // Writes the unit, lets it start with the machine, and starts it again if it runs. Returns a line
  // for the user if it will only start when the user logs in.
  absl::StatusOr<std::string> Install(const Machine& machine) const;
  // Stops the service and removes the unit.
  absl::Status Remove() const;

 private:
  std::string UnitText(const Machine& machine) const;

  std::string binary_dir_;
  std::string path_;
};

}  // namespace trainyard::commands
