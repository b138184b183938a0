// Looks the text through with a parser that knows lines and columns and keeps nothing, and only
// then has it read into memory, and by protobuf. What anybody can send must not take more time than
// its size allows.
#include "server/http/json.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::http {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::json;

constexpr size_t kMessageBytesMax = 600;

absl::Status InvalidJson(absl::string_view why) {
  return MakeError(absl::StatusCode::kInvalidArgument, "INVALID_JSON",
                   PlainText(std::string(why), kMessageBytesMax));
}

// Returns what the library says, which is "[json.exception...] parse error at line 1, column 9:
// ...".
absl::Status NoJson(absl::string_view what) {
  const size_t end = what.find("] ");
  if (end != absl::string_view::npos) what.remove_prefix(end + 2);
  return InvalidJson(absl::StrCat("the body is no JSON: ", what));
}

// Counts what a text has. The library's names are those that it calls. Its own way to bound the
// depth, a callback for its parser, takes quadratic time for many small objects.
class Bounds : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (name.size() > kJsonKeyBytesMax) {
      return Fail("the JSON has a name of more than ", kJsonKeyBytesMax, " bytes");
    }
    return ++members_.back() <= kJsonMembersMax ||
           Fail("the JSON has an object with more than ", kJsonMembersMax, " names");
  }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    status_ = NoJson(error.what());
    return false;
  }
  const absl::Status& status() const { return status_; }

 private:
  bool Count() {
    return ++values_ <= kJsonValuesMax ||
           Fail("the JSON has more than ", kJsonValuesMax, " values");
  }
  bool Open() {
    members_.push_back(0);
    if (members_.size() <= kJsonDepthMax) return Count();
    return Fail("the JSON is nested more than ", kJsonDepthMax, " levels deep");
  }
  bool Close() {
    members_.pop_back();
    return true;
  }
  template <typename... Words>
  bool Fail(const Words&... words) {
    status_ = InvalidJson(absl::StrCat(words...));
    return false;
  }

  std::vector<size_t> members_;  // of each object or array that is open
  int values_ = 0;
  absl::Status status_;
};

absl::StatusOr<json> Parse(absl::string_view text) {
  Bounds bounds;
  const bool is_good = json::sax_parse(text.begin(), text.end(), &bounds);
  TY_RETURN_IF_ERROR(bounds.status());
  json parsed = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!is_good || parsed.is_discarded()) return NoJson("it cannot be read");
  return parsed;
}

// Returns the field of the key, by its name in the proto file or by that of protobuf's JSON.
const FieldDescriptor* FieldOf(const Descriptor& type, const std::string& key) {
  const FieldDescriptor* field = type.FindFieldByName(key);
  return field != nullptr ? field : type.FindFieldByCamelcaseName(key);
}

bool IsSpec(const FieldDescriptor& field) {
  return !field.is_repeated() && field.message_type() == v1::JobSpec::descriptor();
}

absl::Status ParseByProtobuf(const json& value, Message& message) {
  const std::string text = value.dump();
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &message);
  if (parsed.ok()) return absl::OkStatus();
  return InvalidJson(
      absl::StrCat("the JSON is no ", message.GetDescriptor()->full_name(), ": ",
                   absl::string_view(parsed.message().data(), parsed.message().size())));
}

absl::Status ParseSpec(const json& value, const FieldDescriptor& field, Message& message) {
  const absl::Status by_people = spec::SetFieldJson(message, field, value.dump(), field.name());
  if (by_people.ok()) return by_people;
  Message& part = *message.GetReflection()->MutableMessage(&message, &field);
  part.Clear();
  return ParseByProtobuf(value, part).ok() ? absl::OkStatus() : by_people;
}

}  // namespace

absl::Status ParseJson(absl::string_view text, Message& message) {
  if (absl::StripAsciiWhitespace(text).empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(json parsed, Parse(text));
  const Descriptor& type = *message.GetDescriptor();
  if (!parsed.is_object()) {
    return InvalidJson(absl::StrCat("expected an object, a ", type.full_name(), ", but found a ",
                                    parsed.type_name()));
  }
  json specs = json::object();
  json others = json::object();
  for (auto& [key, value] : parsed.items()) {
    const FieldDescriptor* field = FieldOf(type, key);
    if (field == nullptr) {
      return InvalidJson(absl::StrCat(type.full_name(), " has no field '", key, "'",
                                      spec::Suggestion(key, spec::FieldNames(type))));
    }
    json& part = IsSpec(*field) && value.is_object() ? specs : others;
    part[key] = std::move(value);
  }
  TY_RETURN_IF_ERROR(ParseByProtobuf(others, message));
  for (const auto& [key, value] : specs.items()) {
    TY_RETURN_IF_ERROR(ParseSpec(value, *FieldOf(type, key), message));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return text;
  return absl::InternalError(
      absl::StrCat("a ", message.GetDescriptor()->full_name(), " cannot be written as JSON"));
}

std::unique_ptr<Message> NewMessage(const Descriptor& type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
}

}  // namespace trainyard::http
