// Serializes messages so that equal ones give equal bytes.
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace trainyard::rpc {

// Returns the bytes of a message, with the entries of maps in order of their keys. Only programs of
// the same version make the same bytes.
std::string DeterministicBytes(const google::protobuf::Message& message);

}  // namespace trainyard::rpc
