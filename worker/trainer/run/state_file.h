// state.json of a checkpoint: which run wrote it, where it stood, and what its weights reached.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::trainer {

// What state.json says about the run, for people and for checks at resume.
struct RunIdentity {
  uint64_t seed = 0;
  int replicas = 1;
  int64_t global_batch = 1;
  std::string data_digest = {};
  std::string model_digest = {};
  std::string init_digest = {};  // of the file that the weights came from; empty: of none
  std::string spec_json = {};    // the resolved spec
  bool is_bitwise = false;
  // Of every rank, of a bitwise run, for ever; 0: each rank has its own.
  int threads = 0;
  // By rank: how many consecutive replicas it computes, and on what type of device.
  std::vector<int> hosting = {};
  std::vector<std::string> device_types = {};
};

// An evaluation of the weights, with all that it takes to get the same bits again.
struct RecordedEvaluation {
  std::map<std::string, double> metrics;  // by name, test.loss and the like
  int64_t samples = 0;
  int64_t skipped = 0;
  std::string data_digest;  // of the test split
  std::string backend;
  // Parts of the split, each in batches of its own: the ranks', of bitwise runs the replicas'.
  int ranks = 1;
  int threads = 1;  // of each

  // Two NaNs are equal.
  friend bool operator==(const RecordedEvaluation& a, const RecordedEvaluation& b);
};

struct StateRecord {
  int64_t step = 0;  // updates done
  int64_t epoch = 0;
  RunIdentity identity;
  std::string version;
  std::optional<RecordedEvaluation> evaluation;  // none where none was made at this step
};

// The same bits, or both NaN.
bool SameValue(double a, double b);

std::string EncodeState(const StateRecord& state);
// DATA_LOSS (CORRUPT_FILE) for what is none; of checkpoints of older trainers spec and evaluation
// are absent.
absl::StatusOr<StateRecord> ReadState(const std::string& path);

}  // namespace trainyard::trainer
