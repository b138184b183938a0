// Prints messages as JSON and YAML.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::output {

// Returns a message as JSON with the field names of the proto files, in one line or indented. It is
// protobuf's JSON but for two things: whole numbers are numbers, unless they are over 2^53, and a
// JobSpec has the form that people write, so that `trainyard submit` can read it back.
std::string ProtoJson(const google::protobuf::Message& message, bool indented);

// Returns protobuf's own JSON in one line, for other programs that read it with protobuf.
std::string WireJson(const google::protobuf::Message& message);

// Returns JSON as YAML: mappings and lists as blocks, but lists of numbers and texts in one line.
// It ends with a newline. Text that is no JSON comes back unchanged.
std::string JsonToYaml(absl::string_view json);

// Returns a spec as YAML in the form that people write (`every: 1 epoch`, `normalize: dataset`).
// `trainyard submit` can read it back.
std::string SpecYaml(const v1::JobSpec& spec);

}  // namespace trainyard::output
