// Makes the command that runs a program in a container.
#pragma once

#include <string>
#include <vector>

#include "worker/program/environment.h"
#include "worker/program/mounts.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::program {

struct Image {
  enum class Kind { kReference, kFolder, kFile };
  std::string name;  // a reference such as docker.io/library/python:3.12, or an absolute path
  Kind kind = Kind::kReference;
};

// Returns the image that a spec names: a path if it begins with '/', '.' or '~', which is relative
// to `start`, else a reference.
Image ImageOf(const std::string& text, const std::string& start, const std::string& home);

// Returns the words that run `command` in the image, with the network and the processes of the
// host, as the user of this process, in `mounts.start`. Values of `variables` are taken from the
// environment of the runtime, so that no other user sees them. Returns INVALID_ARGUMENT if the
// runtime cannot run such an image.
absl::StatusOr<std::vector<std::string>> ContainerWords(const run_dir::Isolation& isolation,
                                                        const Image& image, const Mounts& mounts,
                                                        const Variables& variables,
                                                        const std::vector<std::string>& command);

// Returns true if a runtime ends with this exit code when it could not begin the program. Those
// that have no code of their own for that are never known to have failed.
bool IsRuntimeFailure(const std::string& runtime, int exit_code);

}  // namespace trainyard::program
