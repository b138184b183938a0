// Finds values in families of metrics.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "server/metrics/families.h"

namespace trainyard::metrics {

using LabelMap = std::map<std::string, std::string>;

// Returns all values of a family by their labels.
inline std::map<LabelMap, double> ValuesOf(const Families& families, const std::string& name) {
  std::map<LabelMap, double> values;
  for (const prometheus::MetricFamily& family : families) {
    if (family.name != name) continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      LabelMap labels;
      for (const auto& label : metric.label) labels[label.name] = label.value;
      values[labels] = family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                                      : metric.gauge.value;
    }
  }
  return values;
}

// Returns one value, or nothing if there is none with exactly these labels.
inline std::optional<double> ValueOf(const Families& families, const std::string& name,
                                     const LabelMap& labels = {}) {
  const std::map<LabelMap, double> values = ValuesOf(families, name);
  const auto found = values.find(labels);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

}  // namespace trainyard::metrics
