// Reads what the process and its disk have: memory, descriptors, threads and space. The names are
// those that Prometheus's own client libraries use.
#pragma once

#include <optional>
#include <string>

#include "server/metrics/families.h"

namespace trainyard::metrics {

// Returns when the process started, in seconds since 1970, by its files and those of the system. It
// changes when the clock is set, so it is asked for once: Prometheus takes a change for a restart.
std::optional<double> StartOfProcess(const std::string& process_folder = "/proc/self",
                                     const std::string& stat_of_system = "/proc/stat");

// Returns what the files of a process say. What cannot be read is left out.
Families ProcessFamilies(std::optional<double> start,
                         const std::string& process_folder = "/proc/self");

// Returns the size of each database in the state directory with its log of changes, and the space
// of the disk.
Families DiskFamilies(const std::string& state_dir);

// Returns when a backup of each kind was made last: the times of the files that backups leave in
// the folder `backups` of the state directory (server/backup/stamp.h).
Families BackupFamilies(const std::string& state_dir);

}  // namespace trainyard::metrics
