// Defines what the runner of a program reads from the job's spec, and reads it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::program {

// The fields of v1.ProgramSpec, and the data of the job. docs/programs.md describes them.
struct ProgramSpec {
  std::vector<std::string> command = {};
  std::string script = {};
  std::string directory = {};
  bool has_code = false;  // its code lies in the run directory
  std::map<std::string, std::string> params = {};
  std::map<std::string, std::string> env = {};
  std::string venv = {};
  std::string conda = {};
  std::vector<std::string> modules = {};
  std::string setup = {};
  std::string container = {};             // the image of a container, or empty
  std::vector<std::string> outputs = {};  // patterns of files that are kept
  std::string tensorboard = {};           // the folder of event files, or empty
  std::vector<std::string> secrets = {};  // names
  // One process runs on each host, with all devices that the job has there.
  bool is_per_host = false;
  absl::Duration idle_limit = absl::ZeroDuration();  // zero for none
  std::string dataset = {};                          // "cifar10", or empty
  std::string data_path = {};                        // below the folder of data sets, or empty
};

// Reads the spec of an assignment: JobSpec in proto JSON. Returns DATA_LOSS (CORRUPT_FILE) with
// `file` and the field that is wrong.
absl::StatusOr<ProgramSpec> ReadProgramSpec(absl::string_view spec_json, absl::string_view file);

// Returns the parameters as the JSON object that the program reads. A value that is JSON, such as
// 0.1, true, [1, 2] or "a text", is that, and all others are texts.
std::string ParamsJson(const std::map<std::string, std::string>& params);

}  // namespace trainyard::program
