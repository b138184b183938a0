// Encodes and decodes one line of metrics. Numbers that JSON cannot express, such as a loss that
// diverged, are written as text.
#include "worker/run_dir/metrics.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {
namespace {

void AppendNumber(double value, std::string& text) {
  if (std::isnan(value)) {
    text += "\"nan\"";
  } else if (std::isinf(value)) {
    text += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    text.append(digits, end);
  }
}

}  // namespace

void AppendMetricLine(const MetricPoint& point, std::string& text) {
  absl::StrAppend(&text, "{\"step\":", point.step, ",\"name\":", JsonQuote(point.name),
                  ",\"value\":");
  AppendNumber(point.value, text);
  absl::StrAppend(&text, ",\"time\":", point.time_us, "}\n");
}

absl::StatusOr<MetricPoint> DecodeMetricLine(absl::string_view line, absl::string_view file) {
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(line, file));
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "", violations);
  MetricPoint point;
  for (const char* key : {"step", "name", "value", "time"}) reader.Require(key);
  reader.Integer("step", point.step, 0, kMaxNumber);
  reader.String("name", point.name);
  reader.Double("value", point.value);
  reader.Integer("time", point.time_us, 0, kMaxNumber);
  if (violations.empty() && (point.name.empty() || point.name.size() > kMaxMetricName)) {
    reader.Violate(
        "name", absl::StrCat("has ", point.name.size(), " bytes; expected 1 to ", kMaxMetricName));
  }
  TY_RETURN_IF_ERROR(FileStatus(file, violations));
  return point;
}

}  // namespace trainyard::run_dir
