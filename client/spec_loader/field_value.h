// Turns a scalar of YAML into the JSON with which common/spec sets fields.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/spec_loader/yaml_tree.h"
#include "google/protobuf/descriptor.h"

namespace trainyard::spec_loader {

// Returns the value of `node` for one element of `field`. Returns INVALID_ARGUMENT with what was
// expected if the node is of another kind or a number does not fit the field's type.
absl::StatusOr<std::string> ScalarJson(const google::protobuf::FieldDescriptor& field,
                                       const YamlNode& node);

// Says for messages what `node` is: "a list", "a mapping", "nothing", or the quoted text.
std::string Found(const YamlNode& node);

}  // namespace trainyard::spec_loader
