// The differences of two specs, field by field.
#pragma once

#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace trainyard::spec {

// One field that differs; values as JSON, empty where unset.
struct FieldDifference {
  std::string path;
  std::string left_json;
  std::string right_json;

  friend bool operator==(const FieldDifference&, const FieldDifference&) = default;
};

// In order of path; empty where both are equal. Lists, intervals and durations are compared as
// wholes, but messages in lists of one length field by field ("stack[3].linear.features"). Both
// messages are of one type.
std::vector<FieldDifference> DiffSpecs(const google::protobuf::Message& left,
                                       const google::protobuf::Message& right);

}  // namespace trainyard::spec
