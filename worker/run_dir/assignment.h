// Defines assignment.json, which says what the ranks of one host are to run. The worker writes it
// once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/run_dir/isolation.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// One rank of this host.
struct RankAssignment {
  int rank = 0;
  int local_rank = 0;
  std::string device = {};       // the device's identifier, "cpu-0"; empty if it has none
  std::string device_type = {};  // "cpu", or kNoDevice
  // Processors to which the rank is bound; empty if it is not bound.
  std::vector<int64_t> cpus = {};
  int threads = 1;
  int64_t memory_bytes = 0;  // of the device; 0 if unknown
  // The memory of the host that the rank may use; 0 for no limit.
  int64_t host_memory_bytes = 0;

  friend bool operator==(const RankAssignment&, const RankAssignment&) = default;
};

// The type of device of a rank that has none.
inline constexpr const char* kNoDevice = "none";

// The backend of a job whose program is the user's own.
inline constexpr const char* kProgramBackend = "program";

struct Assignment {
  int64_t job = 0;
  int64_t attempt = 0;
  int64_t fencing_token = 0;
  int world_size = 1;
  std::vector<RankAssignment> ranks = {};  // of this host
  std::string backend = "cpu";
  std::string interface = "lo";  // a name, an address, or a network; see FindInterface
  std::string dataset_dir = {};
  std::string resume_from = {};  // a checkpoint folder, or empty for a new start
  // The checkpoint folder of spec.init.job, or empty if there is none.
  std::string init_from = {};
  // The job's spec as a JSON object: JobSpec in proto JSON with proto field names. This folder,
  // which the supervisor links, knows no protobuf; the trainer reads the spec
  // (worker/trainer/plan/spec.h).
  std::string spec_json = "{}";
  std::string worker = {};  // this host's name in the pool; empty if it has none
  // The job's earlier attempts that failed, and how long all of its earlier attempts trained.
  int64_t failures = 0;
  absl::Duration run_time = {};
  Isolation isolation = {};

  // Returns null if `rank` is not on this host.
  const RankAssignment* FindRank(int rank) const;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// Returns indented JSON, for people. `spec_json` must be a JSON object; otherwise it returns
// INVALID_ARGUMENT.
absl::StatusOr<std::string> EncodeAssignment(const Assignment& assignment);
// Returns DATA_LOSS (CORRUPT_FILE) with `file` and the field that is wrong, or UNIMPLEMENTED for
// another format version.
absl::StatusOr<Assignment> DecodeAssignment(absl::string_view text, absl::string_view file);

absl::Status WriteAssignment(const RunDir& dir, const Assignment& assignment);
absl::StatusOr<Assignment> ReadAssignment(const RunDir& dir);

}  // namespace trainyard::run_dir
