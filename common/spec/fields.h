// Reading and writing single fields of a message by reflection, with values as JSON: what defaults,
// changes and differences of specs share. Enum values are written in lower case without their
// prefix ("dataset" for NORMALIZE_DATASET), intervals, durations and sizes as people write them.
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

// The rules beside the field; empty ones where none stand there.
const v1::FieldRules& RulesOf(const google::protobuf::FieldDescriptor& field);

// The rules beside a field of `Message`, by its number: RulesOf<v1::TrainSpec>(kSeedFieldNumber).
template <typename Message>
const v1::FieldRules& RulesOf(int field_number) {
  return RulesOf(*Message::descriptor()->FindFieldByNumber(field_number));
}

// True for a field that holds an Interval, a Duration or a ByteSize: these are values here, and not
// messages.
bool IsSpan(const google::protobuf::FieldDescriptor& field);
// True for a single message with fields of its own.
bool IsSubmessage(const google::protobuf::FieldDescriptor& field);
// True for a list of messages; maps are none.
bool IsMessageList(const google::protobuf::FieldDescriptor& field);

// True where somebody gave the field: it is present, or, without presence, neither zero nor empty.
bool IsGiven(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field);

// The entries of a map of texts, which are the only maps of specs; and one of them set.
std::map<std::string, std::string> MapEntries(const google::protobuf::Message& message,
                                              const google::protobuf::FieldDescriptor& field);
void SetMapEntry(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
                 const std::string& key, const std::string& value);

// The field's value as JSON; empty where it is not given. Submessages are written as objects.
std::string FieldJson(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// Replaces the field's value. `json` is JSON, or a bare word where a text is meant. For
// submessages: an object, the bare value of their shorthand, or the name of a member of their
// oneof. INVALID_ARGUMENT (INVALID_SPEC) with one violation, whose path starts with `path`.
absl::Status SetFieldJson(google::protobuf::Message& message,
                          const google::protobuf::FieldDescriptor& field, absl::string_view json,
                          absl::string_view path);

// Names of all fields in order of declaration; of all values of an enum as specs write them.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);
std::vector<std::string> EnumTexts(const google::protobuf::EnumDescriptor& type);

// INVALID_SPEC with the one violation, and the message `field: description`.
absl::Status FieldError(absl::string_view field, absl::string_view description);
// "; did you mean 'lr'?", or what there is where no word is near.
std::string Suggestion(absl::string_view word, const std::vector<std::string>& candidates);

// `path.name`, or `name` under an empty path.
std::string JoinFieldPath(absl::string_view path, absl::string_view name);

}  // namespace trainyard::spec
