// Enforces the rules that stand beside the fields in the proto files (annotations.proto).
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "google/protobuf/message.h"

namespace trainyard::spec {

// Returns all violations in `message` and its submessages, in order of declaration. Their field
// paths begin with `path` ("spec" for "spec.train.global_batch"). Numbers must be finite, and enum
// values and fields must be known.
std::vector<FieldViolation> ValidateRules(const google::protobuf::Message& message,
                                          absl::string_view path);

}  // namespace trainyard::spec
