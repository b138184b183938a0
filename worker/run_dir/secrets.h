// Finds the secrets of an attempt: the folder `secrets` of its run directory, or what that links to
// in a file system in memory.
#pragma once

#include <string>

#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// The first part of the names of folders in memory, below which each attempt has one.
inline constexpr char kSecretsBase[] = "trainyard-secrets";

std::string SecretsPath(const RunDir& dir);  // secrets
// Returns the folder with the files, or "" if there is none.
std::string SecretsFolder(const RunDir& dir);

// Returns the name of an attempt's folder in memory. `host` tells the daemons of a host apart.
std::string SecretsFolderName(const std::string& host, int64_t job, int64_t attempt);

// Removes the files, as far as this process may. A link that leads to anything but the folder of
// this attempt is left alone.
void RemoveSecrets(const RunDir& dir);

}  // namespace trainyard::run_dir
