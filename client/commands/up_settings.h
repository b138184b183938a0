// Remembers with which flags `up` started the daemons of a state directory, so that the next `up`
// starts the same ones: after `down`, after a crash, and after a reboot.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard::commands {

// Flags of `up` with their values, such as {"--cpu-devices", "2"}. A switch has the value "".
using UpSettings = std::map<std::string, std::string>;

// Returns what WriteUpSettings wrote, and nothing if there is no such file. Returns
// INVALID_ARGUMENT, with the path and what to do, if the file is none of ours.
absl::StatusOr<UpSettings> ReadUpSettings(const std::string& path);
absl::Status WriteUpSettings(const std::string& path, const UpSettings& settings);

// Returns `given` together with those of `remembered` that are not given.
UpSettings Merged(UpSettings given, const UpSettings& remembered);

// Returns the flags as they are typed: "--cpu-devices 2 --share-cpus".
std::string UpSettingsText(const UpSettings& settings);

// Returns the given flags that differ from those that run.
UpSettings Differing(const UpSettings& given, const UpSettings& running);

}  // namespace trainyard::commands
