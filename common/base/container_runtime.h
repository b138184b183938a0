// Finds the programs that run images on a host.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

struct ContainerRuntime {
  std::string name;     // "podman", "apptainer", "charliecloud" or "enroot"; empty if there is none
  std::string program;  // its path

  friend bool operator==(const ContainerRuntime&, const ContainerRuntime&) = default;
};

// Returns the runtime that is taken. `find` returns the path of a program by its name, or an empty
// text. Where jobs run as their owners they may start no set-user-ID programs, which podman needs,
// so it is not taken there.
ContainerRuntime FindContainerRuntime(bool runs_as_owners,
                                      const std::function<std::string(const std::string&)>& find);

// Returns the path of a program in the folders of the system under `root`, or an empty text.
std::string FindSystemProgram(absl::string_view name, absl::string_view root = "");

}  // namespace trainyard
