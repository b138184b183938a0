// Parses each line by itself, so that a line with a mistake costs no other.
#include "worker/program/metrics_intake.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/strings.h"
#include "worker/run_dir/records.h"

namespace trainyard::program {
namespace {

using MetricJson = nlohmann::json;

constexpr int64_t kStepMax = int64_t{1} << 53;
// Names are part of some mistakes, and a program may have any number of them.
constexpr size_t kMistakesMax = 100;
constexpr size_t kShownNameBytes = 100;

std::optional<double> NumberOf(const MetricJson& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  double number = 0;  // also "nan" and "inf"
  if (!absl::SimpleAtod(value.get<std::string>(), &number)) return std::nullopt;
  return number;
}

std::optional<int64_t> WholeOf(const MetricJson& value) {
  const std::optional<double> number = value.is_boolean() ? std::nullopt : NumberOf(value);
  if (!number.has_value() || !(*number >= 0) || *number > static_cast<double>(kStepMax)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

}  // namespace

std::string WithNumbersAsTexts(absl::string_view line) {
  std::string result;
  bool in_text = false;
  while (!line.empty()) {
    const char c = line.front();
    if (in_text && c == '\\' && line.size() > 1) {
      absl::StrAppend(&result, line.substr(0, 2));
      line.remove_prefix(2);
      continue;
    }
    if (!in_text && absl::ConsumePrefix(&line, "NaN")) {
      result += "\"nan\"";
    } else if (!in_text && absl::ConsumePrefix(&line, "-Infinity")) {
      result += "\"-inf\"";
    } else if (!in_text && absl::ConsumePrefix(&line, "Infinity")) {
      result += "\"inf\"";
    } else {
      in_text ^= c == '"';
      result += c;
      line.remove_prefix(1);
    }
  }
  return result;
}

void MetricsIntake::Refuse(const std::string& what) {
  ++refused_lines_;
  if (known_mistakes_.size() >= kMistakesMax || !known_mistakes_.emplace(what, true).second) return;
  mistakes_.push_back(absl::StrCat("line ", lines_, " of metrics.jsonl ", what));
}

std::vector<std::string> MetricsIntake::TakeMistakes() {
  return std::exchange(mistakes_, {});
}

void MetricsIntake::Take(absl::string_view lines, int64_t now_us, std::string& points) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    ++lines_;
    TakeLine(absl::StripAsciiWhitespace(lines.substr(0, end)), now_us, points);
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

void MetricsIntake::AddPoint(int64_t step, const std::string& name, double value, int64_t time_us,
                             std::string& points) {
  const std::string full = rank_ == 0 ? name : absl::StrCat(name, ".rank", rank_);
  if (name.empty() || full.size() > run_dir::kMaxMetricName) {
    return Refuse(absl::StrCat("has a name that is empty or longer than ", run_dir::kMaxMetricName,
                               " bytes"));
  }
  if (!IsUtf8(name) || std::any_of(name.begin(), name.end(), absl::ascii_iscntrl)) {
    return Refuse("has a name with control characters");
  }
  run_dir::AppendMetricLine({step, full, value, time_us}, points);
  has_points_ = true;
  if (last_.size() < run_dir::kLastMetricsMax || last_.count(full) > 0) last_[full] = value;
}

void MetricsIntake::Add(const run_dir::MetricPoint& point, std::string& points) {
  if (point.step < 0 || point.step > kStepMax) return;
  step_ = std::max(step_, point.step);
  AddPoint(point.step, point.name, point.value, point.time_us, points);
}

void MetricsIntake::TakeLine(absl::string_view line, int64_t now_us, std::string& points) {
  if (line.empty()) return;
  if (line.size() > kLineBytesMax) return Refuse("is longer than 1 MiB");
  MetricJson json =
      MetricJson::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    json = MetricJson::parse(WithNumbersAsTexts(line), nullptr, /*allow_exceptions=*/false);
  }
  if (!json.is_object()) return Refuse("is no JSON object");
  if (const auto step = json.find("step"); step != json.end()) {
    const auto number = WholeOf(*step);
    if (!number.has_value()) return Refuse("has a step that is no whole number of at least 0");
    step_ = *number;
  }
  if (const auto total = json.find("total_steps"); total != json.end()) {
    const auto number = WholeOf(*total);
    if (!number.has_value()) return Refuse("has a total_steps that is no whole number");
    total_steps_ = *number;
  }
  int64_t time_us = now_us;
  if (const auto time = json.find("time"); time != json.end()) {
    const auto seconds = NumberOf(*time);
    const bool is_time = seconds.has_value() && *seconds >= 0 && *seconds < 1e11;
    if (!is_time) return Refuse("has a time that is no number of seconds since 1970");
    time_us = static_cast<int64_t>(*seconds * 1e6);
  }
  const auto add = [&](const std::string& name, const MetricJson& value) {
    const auto number = NumberOf(value);
    if (!number.has_value()) {
      return Refuse(absl::StrCat("has a value of '", PlainText(name, kShownNameBytes),
                                 "' that is no number"));
    }
    AddPoint(step_, name, *number, time_us, points);
  };
  const auto name = json.find("name");
  const auto value = json.find("value");
  if (name != json.end() && name->is_string() && value != json.end()) {
    add(name->get<std::string>(), *value);
  }
  const auto metrics = json.find("metrics");
  if (metrics == json.end()) {
    if (name == json.end() && !json.contains("total_steps")) {
      Refuse("has neither name and value nor metrics");
    }
    return;
  }
  if (!metrics->is_object()) return Refuse("has metrics that are no JSON object");
  for (const auto& [key, number] : metrics->items()) add(key, number);
}

}  // namespace trainyard::program
