// Turns what was measured into findings. The functions are pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/doctor/facts.h"
#include "client/doctor/finding.h"
#include "trainyard/v1/access.pb.h"
#include "trainyard/v1/fleet.pb.h"

namespace trainyard::doctor {

// `version` is that of this client.
Findings JudgePrograms(const std::vector<ProgramFacts>& programs, const std::string& version);

// A folder of state. `owner` is whose it has to be: this user's, or that of a daemon.
Finding JudgeStateFolder(const FileFacts& folder, const std::string& owner);
// A file with a secret, such as a token. Nobody but its owner may read it.
Finding JudgeSecretFile(const FileFacts& file, const std::string& owner);
// A group that the flags of the server name, such as admin_group.
Finding JudgeGroup(const std::string& flag, const std::string& group, bool exists);
Finding JudgeSocket(const SocketFacts& socket);
// The two daemons of `trainyard up`.
Finding JudgeUp(const std::string& state_dir, bool server_runs, bool worker_runs);
Findings JudgeSettings(const SettingsFacts& settings);
Findings JudgeUnits(const std::vector<UnitFacts>& units);

Finding JudgeCgroup(const CgroupFacts& cgroup);
Finding JudgeSandbox(const SandboxFacts& sandbox);
Findings JudgeLimits(const LimitFacts& limits);
Finding JudgeMemory(const MemoryFacts& memory);
Finding JudgeClock(const ClockFacts& clock);

Finding JudgeFileSystem(const DiskFacts& disk);
Finding JudgeSpace(const DiskFacts& disk);
// Returns nothing if nothing was written.
Findings JudgeSpeed(const DiskFacts& disk);

Findings JudgeGpus(const GpuFacts& gpus);
Findings JudgeNetwork(const NetworkFacts& network);
Findings JudgeDatasets(const DatasetFacts& datasets);

// The server that commands go to.
struct ServerFacts {
  std::string address;    // empty if there is none
  std::string reason;     // why it is this one
  bool is_named = false;  // by the user, and not merely found
  bool is_of_this_host = false;
  absl::Status error;  // why it cannot be asked
  v1::WhoAmIResponse who;
  std::string who_error;
  std::vector<v1::Worker> workers;
  std::string workers_error;
  absl::Time now;  // by the clock of this host
};
Findings JudgeServer(const ServerFacts& server, const std::string& version);

}  // namespace trainyard::doctor
