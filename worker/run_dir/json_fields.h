// Reading JSON objects field by field, with the path of what is wrong. For the .cc files of this
// folder only: it is the one header here that includes the JSON library.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "nlohmann/json.hpp"

namespace trainyard::run_dir {

using Json = nlohmann::ordered_json;

// Bytes and nesting that a file of the run directory may have.
inline constexpr int64_t kMaxJsonBytes = int64_t{16} << 20;
inline constexpr int kMaxJsonDepth = 64;
// The limit of numbers that have no other.
inline constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();

// Parses one JSON object. Refuses duplicate keys (the library would keep the last one in silence)
// and deep nesting. DATA_LOSS (CORRUPT_FILE) with `file`.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view file);

// Compact, or indented where `indent` >= 0; bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& value, int indent = -1);

// A number, or "nan", "inf", "-inf" for what JSON numbers cannot say.
Json NumberJson(double value);

// Views one object; leaves the targets alone where a field is absent or null, and adds a violation
// with its path where its type or value is wrong. Borrows all of its arguments.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path, std::vector<FieldViolation>& violations);

  bool Has(absl::string_view key) const;
  // Adds a violation where the field is absent.
  void Require(absl::string_view key);

  // Integers may be JSON numbers or, as proto JSON has them, strings of digits.
  void Integer(absl::string_view key, int64_t& value,
               int64_t min = std::numeric_limits<int64_t>::min(),
               int64_t max = std::numeric_limits<int64_t>::max());
  void Integer(absl::string_view key, int& value, int min = std::numeric_limits<int>::min(),
               int max = std::numeric_limits<int>::max());
  // True where the field is there and good.
  bool Double(absl::string_view key, double& value);
  void String(absl::string_view key, std::string& value);
  void Integers(absl::string_view key, std::vector<int64_t>& values, int64_t min, int64_t max);

  // A reader of the object under `key`; of an empty object where it is absent or no object.
  FieldReader Object(absl::string_view key);
  // Readers of the objects of the list under `key`.
  std::vector<FieldReader> Objects(absl::string_view key);
  // The keys of this object.
  std::vector<std::string> Keys() const;
  // The field as JSON; null where it is absent.
  const Json& Raw(absl::string_view key) const;

  // Adds a violation `description` at `key`.
  void Violate(absl::string_view key, absl::string_view description);
  std::string PathOf(absl::string_view key) const;

 private:
  const Json* Find(absl::string_view key) const;
  void WrongType(const std::string& path, const Json& got, absl::string_view expected);
  bool ToInteger(const Json& field, const std::string& path, int64_t min, int64_t max,
                 int64_t& value);
  bool ToDouble(const Json& field, const std::string& path, double& value);

  const Json& object_;
  std::string path_;
  std::vector<FieldViolation>& violations_;
};

// OK where there are no violations; else DATA_LOSS (CORRUPT_FILE) with the file and the first of
// them.
absl::Status FileStatus(absl::string_view file, const std::vector<FieldViolation>& violations);

}  // namespace trainyard::run_dir
