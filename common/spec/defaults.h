// Defaults of a message, from the rules in the proto files.
#pragma once

#include "google/protobuf/message.h"

namespace trainyard::spec {

// Gives every field that nobody gave its default_json, every oneof its default_field, and creates
// the submessages that hold defaults; also in the messages of lists. Required fields, and what a
// oneof does not hold, stay as they are. A default that its field cannot hold is a bug of the proto
// file and ends the process.
void FillDefaults(google::protobuf::Message& message);

}  // namespace trainyard::spec
