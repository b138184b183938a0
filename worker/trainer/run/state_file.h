// Defines state.json of a checkpoint, which says which run wrote it, how far the run was, and what
// its weights reached.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::trainer {

// The run as state.json describes it, for people and for checks at resume.
struct RunIdentity {
  uint64_t seed = 0;
  int replicas = 1;
  int64_t global_batch = 1;
  std::string data_digest = {};
  std::string model_digest = {};
  std::string init_digest = {};  // of the file that the weights came from; empty if there is none
  std::string spec_json = {};    // the resolved spec
  bool is_bitwise = false;
  // By rank: how many consecutive replicas it computes, and on what type of device.
  std::vector<int> hosting = {};
  std::vector<std::string> device_types = {};
};

// An evaluation of the weights, with everything that it takes to get the same bits again.
struct RecordedEvaluation {
  std::map<std::string, double> metrics;  // by name, test.loss and the like
  int64_t samples = 0;
  int64_t skipped = 0;
  std::string data_digest;  // of the test split
  std::string backend;
  // The number of parts of the split, each of which has batches of its own: one for each rank, or
  // in a bitwise run for each replica.
  int ranks = 1;
  // The threads of each. In a bitwise run any number gives the same bits, and 1 stands here.
  int threads = 1;

  // Two NaNs are equal here.
  friend bool operator==(const RecordedEvaluation& a, const RecordedEvaluation& b);
};

struct StateRecord {
  int64_t step = 0;  // updates done
  int64_t epoch = 0;
  RunIdentity identity;
  std::string version;
  std::optional<RecordedEvaluation> evaluation;  // unset if none was made at this step
};

// Returns true if both have the same bits, or are NaN.
bool SameValue(double a, double b);

std::string EncodeState(const StateRecord& state);
// Returns DATA_LOSS (CORRUPT_FILE) if the file is not a state. Checkpoints of older trainers have
// no spec and no evaluation.
absl::StatusOr<StateRecord> ReadState(const std::string& path);

}  // namespace trainyard::trainer
