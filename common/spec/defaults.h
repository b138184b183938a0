// Fills in the defaults of a message from the rules in the proto files.
#pragma once

#include "google/protobuf/message.h"

namespace trainyard::spec {

// Gives every unset field its default_json and every unset oneof its default_field, and creates the
// submessages that hold defaults. The messages in lists are treated alike. Required fields, and
// members that a oneof does not hold, stay unset. A default that its field cannot hold is a bug of
// the proto file and ends the process.
void FillDefaults(google::protobuf::Message& message);

}  // namespace trainyard::spec
