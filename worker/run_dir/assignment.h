// assignment.json: what the ranks of one host are to run. Written once by the worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// One rank of this host.
struct RankAssignment {
  int rank = 0;
  int local_rank = 0;
  std::string device = {};         // the device's identifier, "cpu-0"
  std::string device_type = {};    // "cpu"
  std::vector<int64_t> cpus = {};  // processors that the rank is bound to; empty: not bound
  int threads = 1;
  int64_t memory_bytes = 0;  // of the device; 0: not known

  friend bool operator==(const RankAssignment&, const RankAssignment&) = default;
};

struct Assignment {
  int64_t job = 0;
  int64_t attempt = 0;
  int64_t fencing_token = 0;
  int world_size = 1;
  std::vector<RankAssignment> ranks = {};  // of this host
  std::string backend = "cpu";
  std::string interface = "lo";  // a name, an address, or a network; see FindInterface
  std::string dataset_dir = {};
  std::string resume_from = {};  // a checkpoint folder; empty to start anew
  // The job's spec as a JSON object: JobSpec in proto JSON with proto field names. This folder,
  // which the supervisor links, knows no protobuf; the trainer reads the spec
  // (worker/trainer/plan/spec.h).
  std::string spec_json = "{}";
  std::string worker = {};  // this host's name in the pool; empty where it has none

  // Null where `rank` is not of this host.
  const RankAssignment* FindRank(int rank) const;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

// Indented, for people. `spec_json` must be a JSON object (INVALID_ARGUMENT otherwise).
absl::StatusOr<std::string> EncodeAssignment(const Assignment& assignment);
// DATA_LOSS (CORRUPT_FILE) with `file` and the field that is wrong; UNIMPLEMENTED for another
// format version.
absl::StatusOr<Assignment> DecodeAssignment(absl::string_view text, absl::string_view file);

absl::Status WriteAssignment(const RunDir& dir, const Assignment& assignment);
absl::StatusOr<Assignment> ReadAssignment(const RunDir& dir);

}  // namespace trainyard::run_dir
