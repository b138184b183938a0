// Messages as JSON and YAML.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::output {

// Proto JSON with the field names of the proto files: one line, or indented.
std::string ProtoJson(const google::protobuf::Message& message, bool indented);

// JSON as YAML: mappings and lists as blocks, lists of numbers and texts in one line. Ends with a
// newline. Text that is no JSON comes back as it is.
std::string JsonToYaml(absl::string_view json);

// A spec in the form that people write (`every: 1 epoch`, `normalize: dataset`), which
// `trainyard submit` reads back.
std::string SpecYaml(const v1::JobSpec& spec);

}  // namespace trainyard::output
