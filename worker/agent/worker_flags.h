// Declares the command line of trainyard-worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "worker/agent/device_inventory.h"
#include "worker/agent/host_resources.h"
#include "worker/agent/run_as.h"

namespace trainyard::agent {

struct WorkerFlags {
  std::string server;
  std::string join_token_file;
  std::string server_fingerprint;
  std::string state_dir;
  std::string name;
  std::string dataset_dir;
  std::string interface = "lo";
  std::string address;
  std::vector<std::string> labels;
  std::string trainer;
  std::string supervisor;
  std::string nvml = "libnvidia-ml.so.1";
  std::string device_metrics_interval = "10s";
  std::string drain_on_stop = "0s";
  RunAs run_as = RunAs::kSelf;
  std::string jobs_of;  // with kAnyone: the only user whose jobs run here
  bool root_jobs = false;
  int64_t rank_core_bytes = 0;
  int64_t rank_open_files = 65536;
  int64_t rank_processes = 32768;
  std::string cgroup = "auto";
  LogFormat log_format = LogFormat::kText;
  std::string cpu_devices = "0";
  CpuDeviceOptions cpu;
  ReservedResources reserved;
};

// Reads the command line into `flags`, whose defaults come from the environment and from the folder
// of this program. If the program must end at once (--help, --version, a mistake), it has printed
// what there is to print, and returns the exit code.
std::optional<int> ReadWorkerFlags(int argc, char** argv, WorkerFlags& flags);

}  // namespace trainyard::agent
