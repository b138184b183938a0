// A scalar of YAML as the JSON that common/spec sets fields with.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/spec_loader/yaml_tree.h"
#include "google/protobuf/descriptor.h"

namespace trainyard::spec_loader {

// The value of `node` for one element of `field`. INVALID_ARGUMENT with what was expected where the
// node is of another kind or a number does not fit the field's type.
absl::StatusOr<std::string> ScalarJson(const google::protobuf::FieldDescriptor& field,
                                       const YamlNode& node);

// "a list", "a mapping", "nothing", or the quoted text: what stands there, for messages.
std::string Found(const YamlNode& node);

}  // namespace trainyard::spec_loader
