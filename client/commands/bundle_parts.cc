// Unknown fields are found by walking the JSON beside the description of the message, because
// protobuf drops them without a word.
#include "client/commands/bundle_parts.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/output/proto_text.h"
#include "client/output/text.h"
#include "common/base/bundle_errors.h"
#include "common/base/strings.h"
#include "common/spec/parse_json.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::commands {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::json;

constexpr size_t kUnknownMax = 1000;
constexpr size_t kUnknownShown = 10;

const FieldDescriptor* FieldOf(const Descriptor& type, const std::string& key) {
  if (const FieldDescriptor* field = type.FindFieldByName(key); field != nullptr) return field;
  return type.FindFieldByCamelcaseName(key);
}

void FindUnknown(const json& value, const Descriptor& type, const std::string& path,
                 std::set<std::string>& unknown);

void FindUnknownIn(const json& value, const FieldDescriptor& field, const std::string& path,
                   std::set<std::string>& unknown) {
  if (field.is_map()) {
    const FieldDescriptor& of_value = *field.message_type()->map_value();
    if (!value.is_object()) return;
    for (const auto& [key, element] : value.items()) {
      FindUnknownIn(element, of_value, absl::StrCat(path, ".*"), unknown);
    }
    return;
  }
  if (field.is_repeated() && value.is_array()) {
    for (const json& element : value) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        FindUnknown(element, *field.message_type(), path, unknown);
      }
    }
    return;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    FindUnknown(value, *field.message_type(), path, unknown);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && value.is_string() &&
             field.enum_type()->FindValueByName(value.get<std::string>()) == nullptr) {
    unknown.insert(absl::StrCat(path, "=", PlainText(value.get<std::string>(), 64)));
  }
}

void FindUnknown(const json& value, const Descriptor& type, const std::string& path,
                 std::set<std::string>& unknown) {
  // Times and the like have a form of their own.
  if (!value.is_object() || type.file()->package() == "google.protobuf") return;
  for (const auto& [key, member] : value.items()) {
    if (unknown.size() >= kUnknownMax) return;
    const FieldDescriptor* field = FieldOf(type, key);
    const std::string name =
        absl::StrCat(path, absl::EndsWith(path, " ") ? "" : ".", PlainText(key, 64));
    if (field == nullptr) {
      unknown.insert(name);
    } else {
      FindUnknownIn(member, *field, name, unknown);
    }
  }
}

// Returns a number as JSON has it, or the text by which JSON cannot say it.
json ValueJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

std::optional<double> ValueOf(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace

absl::Status PartReader::Read(absl::string_view part, absl::string_view json_text,
                              google::protobuf::Message& message) {
  const auto refuse = [&](absl::string_view why) {
    return error::BundleRefused(bundle_, absl::StrCat("'", part, "' ", why));
  };
  // It is parsed twice, and deep nesting is refused by the first.
  const auto value = spec::ParseJson(json_text);
  if (!value.has_value() || !value->is_object()) return refuse("is no JSON object");
  FindUnknown(*value, *message.GetDescriptor(), absl::StrCat(part, " "), unknown_);
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status =
      google::protobuf::util::JsonStringToMessage(std::string(json_text), &message, options);
  if (status.ok()) return absl::OkStatus();
  return refuse(
      absl::StrCat("cannot be read: ",
                   PlainText(std::string(status.message().data(), status.message().size()), 200)));
}

absl::StatusOr<v1::MetricPoint> PartReader::ReadPoint(absl::string_view line) const {
  const auto refuse = [&] {
    return error::BundleRefused(
        bundle_, absl::StrCat("metrics.jsonl has the line '", PlainText(std::string(line), 100),
                              "'; expected step, name, value and time"));
  };
  const auto value = spec::ParseJson(line);
  if (!value.has_value() || !value->is_object()) return refuse();
  const auto find = [&value](const char* key) {
    const auto found = value->find(key);
    return found == value->end() ? json() : *found;
  };
  const json step = find("step");
  const json name = find("name");
  const std::optional<double> number = ValueOf(find("value"));
  const json time_text = find("time");
  absl::Time time;
  if (!step.is_number_integer() || !name.is_string() || !number.has_value() ||
      !time_text.is_string() ||
      !absl::ParseTime(absl::RFC3339_full, time_text.get<std::string>(), &time, nullptr)) {
    return refuse();
  }
  v1::MetricPoint point;
  point.set_step(step.get<int64_t>());
  point.set_name(name.get<std::string>());
  point.set_value(*number);
  const int64_t microseconds = absl::ToUnixMicros(time);
  point.mutable_time()->set_seconds(microseconds / 1'000'000);
  point.mutable_time()->set_nanos(static_cast<int32_t>(microseconds % 1'000'000 * 1000));
  return point;
}

std::string PartReader::Warning() const {
  if (unknown_.empty()) return "";
  std::vector<std::string> shown(unknown_.begin(), unknown_.end());
  if (shown.size() > kUnknownShown) shown.resize(kUnknownShown);
  return absl::StrCat("bundle '", bundle_,
                      "' has fields that this version does not know, which are left out: ",
                      absl::StrJoin(shown, ", "), unknown_.size() > kUnknownShown ? ", ..." : "");
}

std::string PartText(const google::protobuf::Message& message) {
  return absl::StrCat(output::WireJson(message), "\n");
}

std::string PointLine(const v1::MetricPoint& point) {
  nlohmann::ordered_json line;
  line["step"] = point.step();
  line["name"] = point.name();
  line["value"] = ValueJson(point.value());
  line["time"] =
      absl::FormatTime(absl::RFC3339_full, output::ToTime(point.time()), absl::UTCTimeZone());
  line["attempt"] = point.attempt();
  return absl::StrCat(line.dump(-1, ' ', false, json::error_handler_t::replace), "\n");
}

std::vector<std::string> DropForeign(v1::JobSpec& spec) {
  std::vector<std::string> sentences;
  spec.clear_notify();
  if (!spec.from_checkpoint().empty()) {
    sentences.push_back(absl::StrCat("it continued from ", spec.from_checkpoint(),
                                     " of its own server; this run begins anew, or --from says "
                                     "where"));
    spec.clear_from_checkpoint();
  }
  if (!spec.init().job().empty()) {
    sentences.push_back(absl::StrCat("it began with the weights of ", spec.init().job(),
                                     " of its own server; this run begins with random ones"));
    spec.clear_init();
  }
  if (!spec.program().secrets().empty()) {
    sentences.push_back(
        absl::StrCat("its program had the secrets ", absl::StrJoin(spec.program().secrets(), ", "),
                     "; this run has none, unless --set program.secrets=[...] gives it yours"));
    spec.mutable_program()->clear_secrets();
  }
  return sentences;
}

}  // namespace trainyard::commands
