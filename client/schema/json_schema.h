// Makes the JSON Schema of job specs, for editors. Names, types, limits, defaults and comments all
// come from the proto files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::schema {

// Returns the schema (draft 7) as indented JSON with a newline at its end. `descriptors` is a
// serialized google.protobuf.FileDescriptorSet of trainyard/v1/spec.proto with its imports and
// source info.
absl::StatusOr<std::string> JobSpecSchema(absl::string_view descriptors);

}  // namespace trainyard::schema
