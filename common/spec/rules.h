// The rules that stand beside the fields in the proto files (annotations.proto), enforced.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "google/protobuf/message.h"

namespace trainyard::spec {

// All violations in `message` and its submessages, in order of declaration; `path` leads their
// field paths ("spec" for "spec.train.global_batch"). Numbers must be finite, enum values and
// fields known.
std::vector<FieldViolation> ValidateRules(const google::protobuf::Message& message,
                                          absl::string_view path);

}  // namespace trainyard::spec
