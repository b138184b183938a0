// Reads JSON objects field by field, with the path of what is wrong. It is only for the .cc files
// of this folder, because no other header here includes the JSON library.
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

// The bytes and the nesting that a file of the run directory may have.
inline constexpr int64_t kMaxJsonBytes = int64_t{16} << 20;
inline constexpr int kMaxJsonDepth = 64;
// The limit of numbers that have no other.
inline constexpr int64_t kMaxNumber = std::numeric_limits<int64_t>::max();

// Parses one JSON object. It refuses duplicate keys (the library would silently keep the last one)
// and deep nesting. Returns DATA_LOSS (CORRUPT_FILE) with `file`.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view file);

// Returns compact JSON, or indented JSON if `indent` >= 0. Bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& value, int indent = -1);

// Returns a number, or "nan", "inf", "-inf" for values that JSON numbers cannot express.
Json NumberJson(double value);

// Programs of users write some of these files, and what they write travels in messages to the
// server. So no string is longer than this.
inline constexpr size_t kStringBytesMax = size_t{64} << 10;

// Reads the fields of one object. It leaves a target alone if the field is absent or null, and adds
// a violation with its path if the field's type or value is wrong. It borrows all of its arguments.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string path, std::vector<FieldViolation>& violations);

  bool Has(absl::string_view key) const;
  // Adds a violation if the field is absent.
  void Require(absl::string_view key);

  // Reads integers, which may be JSON numbers or, as in proto JSON, strings of digits.
  void Integer(absl::string_view key, int64_t& value,
               int64_t min = std::numeric_limits<int64_t>::min(),
               int64_t max = std::numeric_limits<int64_t>::max());
  void Integer(absl::string_view key, int& value, int min = std::numeric_limits<int>::min(),
               int max = std::numeric_limits<int>::max());
  // Returns true if the field is present and valid.
  bool Double(absl::string_view key, double& value);
  // A string of more than `max_bytes` is a violation.
  void String(absl::string_view key, std::string& value, size_t max_bytes = kStringBytesMax);
  // Reads at most `max_bytes` of a text for people, and marks what was cut.
  void Text(absl::string_view key, std::string& value, size_t max_bytes);
  void Integers(absl::string_view key, std::vector<int64_t>& values, int64_t min, int64_t max);

  // Returns a reader of the object under `key`, or of an empty object if it is absent or no object.
  FieldReader Object(absl::string_view key);
  // Returns readers of the objects in the list under `key`.
  std::vector<FieldReader> Objects(absl::string_view key);
  // Returns the keys of this object.
  std::vector<std::string> Keys() const;
  // Returns the field as JSON, or null if it is absent.
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

// Returns OK if there are no violations, and else DATA_LOSS (CORRUPT_FILE) with the file and the
// first of them.
absl::Status FileStatus(absl::string_view file, const std::vector<FieldViolation>& violations);

}  // namespace trainyard::run_dir
