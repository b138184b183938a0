// Reads and writes single fields of a message by reflection, with values as JSON. Defaults, changes
// and differences of specs are built on it. Enum values are written in lower case without their
// prefix ("dataset" for NORMALIZE_DATASET), and intervals, durations and sizes as people write
// them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "trainyard/v1/annotations.pb.h"

namespace trainyard::spec {

// Returns the rules beside the field, which are empty if there are none.
const v1::FieldRules& RulesOf(const google::protobuf::FieldDescriptor& field);

// Returns the rules beside a field of `Message`, by its number:
// RulesOf<v1::TrainSpec>(kSeedFieldNumber).
template <typename Message>
const v1::FieldRules& RulesOf(int field_number) {
  return RulesOf(*Message::descriptor()->FindFieldByNumber(field_number));
}

// Returns true for a field that holds an Interval, a Duration or a ByteSize. These count as values,
// and not as messages.
bool IsSpan(const google::protobuf::FieldDescriptor& field);
// Returns true for a single message with fields of its own.
bool IsSubmessage(const google::protobuf::FieldDescriptor& field);
// Returns true for a list of messages. Maps are no such lists.
bool IsMessageList(const google::protobuf::FieldDescriptor& field);

// Returns true if the field was given: it is present, or, if it has no presence, it is neither zero
// nor empty.
bool IsGiven(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// Returns true if the field must always be given, or in place of another.
bool IsRequired(const v1::FieldRules& rules);

// These functions read and set entries of a map of texts. Specs have no other maps.
std::map<std::string, std::string> MapEntries(const google::protobuf::Message& message,
                                              const google::protobuf::FieldDescriptor& field);
void SetMapEntry(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                 const std::string& key, const std::string& value);

// Returns the field's value as JSON, or an empty text if it is not given. Submessages are written
// as objects.
std::string FieldJson(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// Replaces the field's value. `json` is JSON, or a bare word if a text is meant. For a submessage
// it is an object, the bare value of its shorthand, or the name of a member of its oneof. Returns
// INVALID_ARGUMENT (INVALID_SPEC) with one violation, whose path starts with `path`.
absl::Status SetFieldJson(google::protobuf::Message& message,
                          const google::protobuf::FieldDescriptor& field, absl::string_view json,
                          absl::string_view path);

// The first returns the names of all fields in the order of their declaration, the second those of
// all values of an enum as specs write them.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);
std::vector<std::string> EnumTexts(const google::protobuf::EnumDescriptor& type);

// Returns INVALID_SPEC with one violation, and the message `field: description`.
absl::Status FieldError(absl::string_view field, absl::string_view description);
// Returns "; did you mean 'lr'?", or the list of all candidates if none is similar.
std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates);

// Returns `path.name`, or `name` if the path is empty.
std::string JoinFieldPath(absl::string_view path, absl::string_view name);

}  // namespace trainyard::spec
