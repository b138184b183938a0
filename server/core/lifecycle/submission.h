// A job as it was submitted. Plain values; the submission of a job never changes.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace trainyard::core {

struct CheckpointRef {
  JobId job;
  int64_t step = 0;

  friend auto operator<=>(const CheckpointRef&, const CheckpointRef&) = default;
};

// The devices that a job asks for.
struct Demand {
  int32_t count = 1;
  std::string type;          // empty: any one type
  bool mixed = false;        // types may differ within the gang
  int32_t min_count = 0;     // elastic: as few as these will do; 0: `count`, no fewer
  int64_t memory_bytes = 0;  // each device has at least so much
  std::map<std::string, std::string> labels = {};  // the worker carries all of them
  bool spread = false;                             // over as many workers as possible, not as few

  int32_t least() const { return min_count == 0 ? count : min_count; }
  bool is_elastic() const { return least() < count; }

  friend auto operator<=>(const Demand&, const Demand&) = default;
};

// Another job that must have ended, or succeeded, before this one may start.
struct Dependency {
  JobId job;
  bool ok = false;  // it has succeeded; else: it has ended, however

  friend auto operator<=>(const Dependency&, const Dependency&) = default;
};

// What was submitted; it never changes. The specs are serialized trainyard.v1.JobSpec; what is read
// from them stands beside them.
struct Submission {
  std::string uid;
  std::string name;
  std::string user;
  std::string spec;
  std::string resolved_spec;
  Demand demand;
  int32_t priority = 0;
  int32_t max_retries = 0;
  int64_t time_limit_us = 0;       // 0: none
  int64_t disconnect_keep_us = 0;  // how long ranks go on without news from the server
  int32_t checkpoints_kept = 1;    // newest ones that stay
  bool keeps_best = false;         // and the best one
  bool judged_by_loss = false;     // the best has the lowest test.loss, not the highest accuracy
  JobId cloned_from;               // 0: none
  std::optional<CheckpointRef> parent_checkpoint;
  std::string server_version;  // that resolved the spec
  std::string project;         // empty: none
  std::vector<std::string> tags;
  std::vector<Dependency> dependencies;
  int64_t not_before_us = 0;          // wall; 0: at once
  int64_t time_limit_warning_us = 0;  // so long before the time limit a checkpoint is asked for
  std::string reservation;            // runs on its devices only; empty: where there is room
  bool preemptible = true;
  // An array: jobs that share this submission and are told apart by JobRecord::array_index.
  int32_t array_size = 0;      // 0: no array
  int32_t array_parallel = 0;  // at most so many at a time; 0: no limit

  friend bool operator==(const Submission&, const Submission&) = default;
};
}  // namespace trainyard::core
