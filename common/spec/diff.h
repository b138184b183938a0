// Finds the differences between two specs, field by field.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace trainyard::spec {

// A field that differs. Its values are JSON, or empty if unset.
struct FieldDifference {
  std::string path;
  std::string left_json;
  std::string right_json;

  friend bool operator==(const FieldDifference&, const FieldDifference&) = default;
};

// Returns the differences in order of their paths, or an empty list if both are equal. Lists,
// intervals and durations are compared as wholes, but lists of messages that have the same length
// are compared field by field ("stack[3].linear.features"). Both messages have the same type.
std::vector<FieldDifference> DiffSpecs(const google::protobuf::Message& left,
                                       const google::protobuf::Message& right);

}  // namespace trainyard::spec
