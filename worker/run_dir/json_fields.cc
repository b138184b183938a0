// Turns the JSON library's exceptions and types into violations with paths.
#include "worker/run_dir/json_fields.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::run_dir {
namespace {

const Json& EmptyObject() {
  static const auto* empty = new Json(Json::object());
  return *empty;
}

const Json& Null() {
  static const auto* null = new Json(nullptr);
  return *null;
}

// Watches the parser: keys of the objects that are open, and how deep they are.
class ParseGuard {
 public:
  bool Visit(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxJsonDepth && error_.empty()) {
      error_ = absl::StrCat("is nested deeper than ", kMaxJsonDepth);
    }
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second && error_.empty()) {
        error_ = absl::StrCat("has the key ", JsonQuote(key), " twice");
      }
    }
    return true;
  }

  const std::string& error() const { return error_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view file) {
  ParseGuard guard;
  Json value;
  try {
    value = Json::parse(text.begin(), text.end(),
                        [&guard](int depth, Json::parse_event_t event, const Json& parsed) {
                          return guard.Visit(depth, event, parsed);
                        });
  } catch (const nlohmann::json::exception& exception) {
    return error::CorruptFile(file, absl::StrCat("is not JSON: ", exception.what()));
  }
  if (!guard.error().empty()) return error::CorruptFile(file, guard.error());
  if (!value.is_object()) {
    return error::CorruptFile(file,
                              absl::StrCat("holds ", value.type_name(), "; expected an object"));
  }
  return value;
}

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json NumberJson(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

FieldReader::FieldReader(const Json& object, std::string path,
                         std::vector<FieldViolation>& violations)
    : object_(object), path_(std::move(path)), violations_(violations) {}

std::string FieldReader::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

const Json* FieldReader::Find(absl::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& FieldReader::Raw(absl::string_view key) const {
  const Json* field = Find(key);
  return field == nullptr ? Null() : *field;
}

bool FieldReader::Has(absl::string_view key) const {
  return Find(key) != nullptr;
}

void FieldReader::Require(absl::string_view key) {
  if (!Has(key)) Violate(key, "is missing");
}

void FieldReader::Violate(absl::string_view key, absl::string_view description) {
  violations_.push_back({PathOf(key), std::string(description)});
}

void FieldReader::WrongType(const std::string& path, const Json& got, absl::string_view expected) {
  // Long values would hide the message.
  constexpr size_t kShown = 60;
  std::string shown = DumpJson(got);
  if (shown.size() > kShown) shown = absl::StrCat(shown.substr(0, kShown), "...");
  violations_.push_back({path, absl::StrCat("is ", shown, "; expected ", expected)});
}

bool FieldReader::ToInteger(const Json& field, const std::string& path, int64_t min, int64_t max,
                            int64_t& value) {
  int64_t number = 0;
  bool good = false;
  if (field.is_number_unsigned()) {
    const auto wide = field.get<uint64_t>();
    good = wide <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    number = static_cast<int64_t>(wide);
  } else if (field.is_number_integer()) {
    number = field.get<int64_t>();
    good = true;
  } else if (field.is_string()) {
    const auto& text = field.get_ref<const std::string&>();
    good = text.find_first_not_of("-0123456789") == std::string::npos &&
           absl::SimpleAtoi(text, &number);
  }
  if (!good || number < min || number > max) {
    std::string expected = "an integer";
    if (min != std::numeric_limits<int64_t>::min() || max != std::numeric_limits<int64_t>::max()) {
      absl::StrAppend(&expected, " from ", min, " to ", max);
    }
    WrongType(path, field, expected);
    return false;
  }
  value = number;
  return true;
}

bool FieldReader::ToDouble(const Json& field, const std::string& path, double& value) {
  if (field.is_number()) {
    value = field.get<double>();
    return true;
  }
  if (field.is_string()) {
    const auto& text = field.get_ref<const std::string&>();
    if (text == "nan" || text == "inf" || text == "-inf") {
      value = text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                            : std::numeric_limits<double>::infinity();
      if (text == "-inf") value = -value;
      return true;
    }
  }
  WrongType(path, field, "a number");
  return false;
}

void FieldReader::Integer(absl::string_view key, int64_t& value, int64_t min, int64_t max) {
  if (const Json* field = Find(key)) ToInteger(*field, PathOf(key), min, max, value);
}

void FieldReader::Integer(absl::string_view key, int& value, int min, int max) {
  int64_t wide = value;
  Integer(key, wide, min, max);
  value = static_cast<int>(wide);
}

bool FieldReader::Double(absl::string_view key, double& value) {
  const Json* field = Find(key);
  return field != nullptr && ToDouble(*field, PathOf(key), value);
}

void FieldReader::String(absl::string_view key, std::string& value, size_t max_bytes) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_string()) return WrongType(PathOf(key), *field, "a string");
  const auto& text = field->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    return Violate(key, absl::StrCat("has ", text.size(), " bytes; expected at most ", max_bytes));
  }
  value = text;
}

void FieldReader::Text(absl::string_view key, std::string& value, size_t max_bytes) {
  String(key, value, std::numeric_limits<size_t>::max());
  value = PlainText(std::move(value), max_bytes);
}

void FieldReader::Integers(absl::string_view key, std::vector<int64_t>& values, int64_t min,
                           int64_t max) {
  const Json* field = Find(key);
  if (field == nullptr) return;
  if (!field->is_array()) return WrongType(PathOf(key), *field, "a list of integers");
  values.assign(field->size(), 0);
  for (size_t i = 0; i < field->size(); ++i) {
    ToInteger((*field)[i], absl::StrCat(PathOf(key), "[", i, "]"), min, max, values[i]);
  }
}

FieldReader FieldReader::Object(absl::string_view key) {
  const Json* field = Find(key);
  if (field != nullptr && !field->is_object()) {
    WrongType(PathOf(key), *field, "an object");
    field = nullptr;
  }
  return FieldReader(field == nullptr ? EmptyObject() : *field, PathOf(key), violations_);
}

std::vector<FieldReader> FieldReader::Objects(absl::string_view key) {
  std::vector<FieldReader> readers;
  const Json* field = Find(key);
  if (field == nullptr) return readers;
  if (!field->is_array()) {
    WrongType(PathOf(key), *field, "a list of objects");
    return readers;
  }
  for (size_t i = 0; i < field->size(); ++i) {
    const std::string path = absl::StrCat(PathOf(key), "[", i, "]");
    if (!(*field)[i].is_object()) WrongType(path, (*field)[i], "an object");
    readers.emplace_back((*field)[i].is_object() ? (*field)[i] : EmptyObject(), path, violations_);
  }
  return readers;
}

std::vector<std::string> FieldReader::Keys() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) keys.push_back(item.key());
  return keys;
}

absl::Status FileStatus(absl::string_view file, const std::vector<FieldViolation>& violations) {
  if (violations.empty()) return absl::OkStatus();
  return error::CorruptFile(
      file, absl::StrCat("'", violations[0].field, "' ", violations[0].description));
}

}  // namespace trainyard::run_dir
