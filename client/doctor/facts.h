// Holds what was measured on a machine. gather.h measures it and judge.h judges it, so that tests
// can show the judge machines that nobody has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/interfaces.h"

namespace trainyard::doctor {

struct ProgramFacts {
  std::string name;     // "trainyard-worker"
  std::string path;     // empty if it is not installed
  std::string version;  // empty if the program does not tell one
  std::string error;    // the reason why it did not start
};

// A file or folder as stat tells it.
struct FileFacts {
  std::string path;
  bool exists = false;
  bool can_read = false;  // by whoever asks
  std::string owner_name = {};
  uint32_t mode = 0;  // the nine bits of permission
};

// A file with the flags of a daemon.
struct SettingsFacts {
  FileFacts file;
  std::string program;  // the one whose flags these are; empty if it is not installed
  std::string mistake;  // what that program says of the file
};

// The socket of a server of this host.
struct SocketFacts {
  std::string what;  // "the server of this machine"
  FileFacts file;
  std::string error;          // the reason why nobody can be reached there
  bool is_forbidden = false;  // somebody may listen, but not to this user
};

// A unit of systemd, in its own words.
struct UnitFacts {
  std::string name;    // "trainyard-server.service"
  std::string load;    // "loaded", "not-found"
  std::string active;  // "active", "inactive", "failed"
  std::string file;    // "enabled", "disabled", "static"
};

struct CgroupFacts {
  bool has_v2 = false;  // /sys/fs/cgroup is a tree of version 2
  // The group that a worker would divide, such as /system.slice/trainyard-jobs.service; empty if
  // none was delegated.
  std::string group;
  std::vector<std::string> controllers;  // those of that group
  bool has_jobs_unit = false;            // the unit trainyard-jobs is installed
};

struct SandboxFacts {
  std::string bubblewrap;  // its path; empty if it is missing
  std::string error;       // the reason why no sandbox could be made
  std::string runtime;     // "podman" or the like, for containers; empty if there is none
};

struct LimitFacts {
  int64_t open_files = 0;           // the hard limit
  int64_t watches = 0;              // inotify: folders that a user may watch
  int64_t watchers = 0;             // inotify: instances of a user
  int64_t shared_memory_bytes = 0;  // the size of /dev/shm; 0 if it is missing
};

struct MemoryFacts {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  int64_t swap_bytes = 0;
  int64_t allowed_bytes = 0;  // less than the total if a control group has a limit
};

struct ClockFacts {
  absl::Time now;
  bool is_known = false;  // the kernel has told the next two
  bool is_synchronized = false;
  absl::Duration error_max;
};

struct DiskFacts {
  std::string folder;
  uint64_t file_system = 0;  // f_type of statfs
  int64_t free_bytes = 0;
  int64_t size_bytes = 0;
  double free_files = 1;   // the share of the inodes that is free
  bool may_write = false;  // by whoever asks
  // These are unset if nothing was written; `error` says why if it was tried.
  std::optional<double> bytes_per_second;
  std::optional<absl::Duration> commit;  // the time of a small write that reaches the disk
  std::string error;
};

struct GpuProcess {
  std::string gpu;
  int64_t pid = 0;
  std::string program;
  int64_t memory_mib = 0;
  bool is_of_trainyard = false;
};

struct GpuFacts {
  std::vector<std::string> cards;  // of NVIDIA, by their addresses on the PCI bus
  std::string driver;              // the version of the loaded kernel module; empty without one
  std::vector<FileFacts> devices;  // /dev/nvidia0, /dev/nvidiactl, ...
  std::string nvml_error;          // the reason why its management library cannot be loaded
  std::vector<std::string> gpus;   // "NVIDIA H200, 143771 MiB"
  std::vector<std::string> without_persistence;  // GPUs
  std::string smi_error;                         // the reason why nvidia-smi told nothing
  std::vector<GpuProcess> processes;
  ProgramFacts trainer;  // trainyard-trainer-cuda
};

struct NetworkFacts {
  std::vector<InterfaceAddress> interfaces;
  std::string address_flag;  // what the worker's flag --address says; empty if it says nothing
  std::string hostname;
  std::vector<std::string> hostname_addresses;
  std::string hostname_error;  // the reason why the name leads to no address
};

struct DatasetFacts {
  std::string folder;       // empty if none is named
  std::string named_by;     // the file or verb that names it
  bool is_for_all = false;  // jobs of all users read it
  bool exists = false;
  std::vector<std::string> closed;  // paths that not everybody can read
  std::vector<std::string> names;   // data sets that can be used
  std::vector<std::string> errors;  // of those that cannot
  std::string error;                // the reason why nobody knows
};

}  // namespace trainyard::doctor
