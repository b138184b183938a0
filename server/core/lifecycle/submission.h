// Defines a job as it was submitted. The values are plain, and the submission of a job never
// changes.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace trainyard::core {

// The outputs of a job are kept as its checkpoints are, in one record under this step.
inline constexpr int64_t kOutputsStep = -1;

struct CheckpointRef {
  JobId job;
  int64_t step = 0;

  bool is_outputs() const { return step == kOutputsStep; }

  friend auto operator<=>(const CheckpointRef&, const CheckpointRef&) = default;
};

// Processors and memory of a host. In the resources of a demand, 0 stands for the share of a
// device.
struct HostAmount {
  int32_t cpus = 0;
  int64_t memory_bytes = 0;

  bool empty() const { return cpus == 0 && memory_bytes == 0; }
  bool Fits(const HostAmount& room) const {
    return cpus <= room.cpus && memory_bytes <= room.memory_bytes;
  }
  HostAmount& operator+=(const HostAmount& other) {
    cpus += other.cpus;
    memory_bytes += other.memory_bytes;
    return *this;
  }
  HostAmount& operator-=(const HostAmount& other) {
    cpus -= other.cpus;
    memory_bytes -= other.memory_bytes;
    return *this;
  }

  friend auto operator<=>(const HostAmount&, const HostAmount&) = default;
};

// The devices that a job asks for.
struct Demand {
  int32_t count = 1;
  std::string type;          // empty means any one type
  bool mixed = false;        // types may differ within the gang
  int32_t min_count = 0;     // for elastic jobs, the fewest that will do; 0 means `count`
  int64_t memory_bytes = 0;  // each device must have at least this much
  std::map<std::string, std::string> labels = {};  // the worker must carry all of them
  // Over as many workers as possible, instead of as few.
  bool spread = false;
  bool bf16 = false;      // each device must compute in bf16
  bool one_host = false;  // all of them on one worker
  int32_t multiple_of =
      1;  // the stages of a pipeline, which the number of devices must be a multiple of
  // The data set that the worker must have, as workers tell it, and the hash that it must have
  // there. Each is empty if any will do.
  std::string dataset = {};
  std::string data_digest = {};
  // The least memory with which a device can compute the step, as it was planned: on a share of a
  // host, and on a GPU. 0 means that it is unknown.
  int64_t host_need_bytes = 0;
  int64_t gpu_need_bytes = 0;
  // The resources of its host that each rank holds.
  HostAmount resources = {};
  // The job is one rank without a device, for which `count` is 1.
  bool is_deviceless = false;

  int32_t devices() const { return is_deviceless ? 0 : count; }
  int32_t least() const { return min_count == 0 ? count : min_count; }
  bool is_elastic() const { return least() < count; }

  friend auto operator<=>(const Demand&, const Demand&) = default;
};

// The computation of a job. Jobs with the same key do the same in each unit of their length.
struct Work {
  std::string key = {};  // empty if it is unknown
  int64_t length = 0;    // epochs or updates; which of them is part of the key

  friend auto operator<=>(const Work&, const Work&) = default;
};

// Another job that must have ended, or succeeded, before this one may start.
struct Dependency {
  JobId job;
  bool ok = false;  // it must have succeeded; otherwise it must only have ended

  friend auto operator<=>(const Dependency&, const Dependency&) = default;
};

inline constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// A submission. It never changes. The specs are serialized trainyard.v1.JobSpec; the values that
// were read from them stand beside them.
struct Submission {
  std::string uid;
  std::string name;
  std::string user;
  std::string spec;
  std::string resolved_spec;
  Demand demand;
  Work work;
  bool auto_precision = false;  // JobRecord::precision says what was chosen for a job
  int32_t priority = 0;
  int32_t max_retries = 0;
  int64_t time_limit_us = 0;       // 0 means none
  int64_t disconnect_keep_us = 0;  // how long ranks keep running without news from the server
  int32_t checkpoints_kept = 1;    // how many of the newest ones stay
  bool keeps_best = false;         // the best one stays as well
  // The best one has the lowest test.loss instead of the highest accuracy.
  bool judged_by_loss = false;
  JobId cloned_from;                               // 0 means none
  JobId verifies;                                  // the job that it runs again; 0 means none
  double verify_tolerance = 0;                     // of the comparison; the core only carries it
  std::optional<CheckpointRef> parent_checkpoint;  // whose training it continues
  std::optional<CheckpointRef> init_checkpoint;    // whose weights it begins with
  std::string server_version;                      // of the server that resolved the spec
  std::string code_digest;                         // of the code archive; empty if there is none
  std::string code_diff_digest;                    // of how its folder differed from the commit
  // The rest of what is known of its origin, as a serialized trainyard.v1.CodeOrigin; it may be
  // empty.
  std::string code_origin;
  // For a job that was imported: where it came from, as a serialized trainyard.v1.ImportOrigin. It
  // is empty for a job that was submitted here.
  std::string import_origin;
  std::string saved_spec;  // the name of the saved spec of which it was run; empty for none
  std::string trial;       // the name of the trial of a sweep that it trains; empty for none
  std::string project;     // empty means none
  std::vector<std::string> tags;
  std::vector<Dependency> dependencies;
  int64_t not_before_us = 0;          // wall time; 0 means at once
  int64_t time_limit_warning_us = 0;  // a checkpoint is requested this long before the time limit
  std::string reservation;            // the job runs only on its devices; empty means any devices
  bool wait_for_devices = false;      // queued even if no known devices could hold it
  bool preemptible = true;
  // The job is deleted this long after its end: 0 for as long as the server keeps jobs, and
  // kForever if the server may never delete it, or a part of it, by itself.
  int64_t retain_us = 0;
  // An array: jobs that share this submission and are told apart by JobRecord::array_index.
  int32_t array_size = 0;      // 0: no array
  int32_t array_parallel = 0;  // how many may run at a time; 0 means no limit

  // Returns true if its job ran elsewhere, and came here when it had ended.
  bool is_imported() const { return !import_origin.empty(); }
  // Returns the checkpoints of other jobs that must stay until the jobs of this submission have
  // ended.
  std::vector<CheckpointRef> NeededCheckpoints() const {
    std::vector<CheckpointRef> needed;
    if (parent_checkpoint.has_value()) needed.push_back(*parent_checkpoint);
    if (init_checkpoint.has_value()) needed.push_back(*init_checkpoint);
    return needed;
  }

  friend bool operator==(const Submission&, const Submission&) = default;
};
}  // namespace trainyard::core
