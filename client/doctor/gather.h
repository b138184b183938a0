// Looks at the machine, and judges nothing. `root` stands before every path of the system, so that
// tests can show a machine that they have made up; it is empty for this machine. These functions
// read files and start programs, and LookAtDisk writes if it is told to. A file system or a name
// service that hangs makes them hang, so whoever calls them waits only for a while.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/daemons/child.h"
#include "client/doctor/facts.h"

namespace trainyard::doctor {

// Runs a program to its end, as daemons::RunChild does. Tests have answers of their own.
using RunProgram =
    std::function<absl::StatusOr<daemons::ChildResult>(const std::vector<std::string>& args)>;
// Returns one that waits for this long.
RunProgram RunWithin(absl::Duration timeout);

// Looks for a program of Trainyard, where `folder` is that of the client, and asks for its version.
ProgramFacts FindTrainyardProgram(const std::string& folder, const std::string& name,
                                  const RunProgram& run);
// Looks for all of them, without the trainer for GPUs.
std::vector<ProgramFacts> FindTrainyardPrograms(const std::string& folder, const RunProgram& run);

FileFacts LookAtFile(const std::string& path);
// Lets `program` read the file with its flags. `program` is empty if it is not installed.
SettingsFacts LookAtSettings(const std::string& path, const std::string& program,
                             const RunProgram& run);
// Returns the value of a flag in such a file, or an empty text.
std::string SettingOf(const std::string& path, absl::string_view flag);
// Returns nothing if systemd does not run here.
absl::StatusOr<std::vector<UnitFacts>> LookAtUnits(const std::string& root, const RunProgram& run);

CgroupFacts LookAtCgroups(const std::string& root);
// Makes a sandbox in which nothing is done, and looks for what runs images where jobs run as their
// owners, or as the worker.
SandboxFacts LookAtSandboxes(const std::string& root, bool runs_as_owners, const RunProgram& run);
LimitFacts LookAtLimits(const std::string& root);
MemoryFacts LookAtMemory(const std::string& root);
ClockFacts LookAtClock(absl::Time now);

// Looks at the disk of a folder, or of the nearest one above that is there. Writes there for about
// this long and at most 256 MiB, into a file that has no name; or not at all if it is zero.
DiskFacts LookAtDisk(const std::string& folder, absl::Duration write_for);

GpuFacts LookAtGpus(const std::string& root, const RunProgram& run);
// Returns the reason why a library cannot be loaded, or an empty text.
std::string WhyNotLoaded(const std::string& library);
// Reads what `nvidia-smi --format=csv,noheader,nounits` prints: the cells of each line.
std::vector<std::vector<std::string>> ReadSmiTable(absl::string_view text);

// `address_flag` is what the worker's flag --address says.
NetworkFacts LookAtNetwork(const std::string& address_flag);

// Looks for what keeps others from reading the folder and what is right in it, and lets `trainer`
// list the data sets. `is_for_all` says that the jobs of all users read them.
DatasetFacts LookAtDatasets(const std::string& folder, const std::string& named_by, bool is_for_all,
                            const std::string& trainer, const RunProgram& run);

}  // namespace trainyard::doctor
