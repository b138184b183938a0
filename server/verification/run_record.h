// Holds what is recorded of a run, for the comparison of two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainyard/v1/job.pb.h"

namespace trainyard::verification {

struct Point {
  int64_t step = 0;
  double value = 0;
};
// The values of a metric. Steps ascend, and each step has one value.
using Series = std::vector<Point>;
// The hashes of files, by their names.
using FileHashes = std::map<std::string, std::string>;

// Everything that is recorded of a run and says what came out, or why it did. What is not known is
// empty.
struct RunRecord {
  std::string job;  // jobs/12
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  std::string failure;   // the first error of a run that failed
  int32_t attempts = 0;  // the number of attempts that it took
  v1::JobSpec spec;      // resolved
  std::map<std::string, Series> metrics;
  int64_t checkpoint_step = 0;  // of the last checkpoint; 0 if there is none
  FileHashes checkpoint;        // its files
  FileHashes outputs;
  std::string data_digest;
  std::string model_digest;
  std::string worker_version;
  v1::ProgramEnvironment environment;
  std::vector<std::string> devices;  // the types of the devices, one for each rank that has one
};

// Returns the devices as people write them: "2 x cpu", or "1 x cpu, 2 x h200".
std::string DevicesText(const std::vector<std::string>& types);

}  // namespace trainyard::verification
