// Parses each line by itself, so that a line with a mistake costs no other.
#include "worker/program/metrics_intake.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/run_dir/records.h"

namespace trainyard::program {
namespace {

using MetricJson = nlohmann::json;

constexpr int64_t kStepMax = int64_t{1} << 53;

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
  if (!known_mistakes_.emplace(what, true).second) return;
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
    const std::string full = rank_ == 0 ? name : absl::StrCat(name, ".rank", rank_);
    const auto number = NumberOf(value);
    if (name.empty() || full.size() > run_dir::kMaxMetricName) {
      return Refuse(absl::StrCat("has a name that is empty or longer than ",
                                 run_dir::kMaxMetricName, " bytes"));
    }
    if (!number.has_value()) {
      return Refuse(absl::StrCat("has a value of '", name, "' that is no number"));
    }
    run_dir::AppendMetricLine({step_, full, *number, time_us}, points);
    has_points_ = true;
    if (last_.size() < run_dir::kLastMetricsMax || last_.count(full) > 0) last_[full] = *number;
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
