// Makes families of metrics: a name, a sentence of help, and one value for each set of labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace trainyard::metrics {

using Families = std::vector<prometheus::MetricFamily>;
using Labels = std::vector<prometheus::ClientMetric::Label>;

prometheus::MetricFamily Gauge(std::string name, std::string help);
prometheus::MetricFamily Counter(std::string name, std::string help);

// Adds a value. No two values of a family may have the same labels.
void AddValue(prometheus::MetricFamily& family, Labels labels, double value);

// Returns a family that has one value, without labels.
prometheus::MetricFamily OneGauge(std::string name, std::string help, double value);
prometheus::MetricFamily OneCounter(std::string name, std::string help, double value);

// Returns microseconds as the seconds in which Prometheus has all times.
double Seconds(int64_t microseconds);

}  // namespace trainyard::metrics
