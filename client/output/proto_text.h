// Prints messages as JSON and YAML.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::output {

// Returns proto JSON with the field names of the proto files, in one line or indented.
std::string ProtoJson(const google::protobuf::Message& message, bool indented);

// Returns JSON as YAML: mappings and lists as blocks, but lists of numbers and texts in one line.
// It ends with a newline. Text that is no JSON comes back unchanged.
std::string JsonToYaml(absl::string_view json);

// Returns a spec in the form that people write (`every: 1 epoch`, `normalize: dataset`). `trainyard
// submit` can read it back.
std::string SpecYaml(const v1::JobSpec& spec);

}  // namespace trainyard::output
