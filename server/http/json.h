// Turns messages into JSON and back, as protobuf has it, with the field names of the proto files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace trainyard::http {

// JSON that is nested more deeply than this is refused.
inline constexpr int kJsonDepthMax = 64;
// So is JSON with more values than the largest spec has, since each takes a hundred bytes once it
// is read.
inline constexpr int kJsonValuesMax = 400'000;
// The maps of a spec have at most 1000 entries. What sets an entry of a map copies the others.
inline constexpr size_t kJsonMembersMax = 1024;
// Names are compared with those of all fields, to say what was meant.
inline constexpr size_t kJsonKeyBytesMax = 4096;

// Fills the message in. An empty text stands for {}. A JobSpec may have the form of protobuf, or
// the one that people write (`"devices": 2, "schedule": "cosine"`). Returns INVALID_ARGUMENT
// (INVALID_JSON) with the line and column of a mistake of JSON, or the path of a field.
absl::Status ParseJson(absl::string_view json, google::protobuf::Message& message);

// Returns a message as JSON in one line.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message);

// Makes an empty message of a type that this program contains.
std::unique_ptr<google::protobuf::Message> NewMessage(const google::protobuf::Descriptor& type);

}  // namespace trainyard::http
