// The JSON Schema of job specs, for editors: names, types, limits, defaults and comments, all from
// the proto files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::schema {

// `descriptors`: a serialized google.protobuf.FileDescriptorSet of trainyard/v1/spec.proto with its
// imports and source info. The schema (draft 7) as indented JSON with a newline at its end.
absl::StatusOr<std::string> JobSpecSchema(absl::string_view descriptors);

}  // namespace trainyard::schema
