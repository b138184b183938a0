// Fills in the structs of prometheus-cpp, which have a member for each type of metric.
#include "server/metrics/families.h"

#include <utility>

namespace trainyard::metrics {
namespace {

constexpr double kMicrosecondsOfSecond = 1e6;

prometheus::MetricFamily Family(std::string name, std::string help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

}  // namespace

prometheus::MetricFamily Gauge(std::string name, std::string help) {
  return Family(std::move(name), std::move(help), prometheus::MetricType::Gauge);
}

prometheus::MetricFamily Counter(std::string name, std::string help) {
  return Family(std::move(name), std::move(help), prometheus::MetricType::Counter);
}

void AddValue(prometheus::MetricFamily& family, Labels labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

prometheus::MetricFamily OneGauge(std::string name, std::string help, double value) {
  prometheus::MetricFamily family = Gauge(std::move(name), std::move(help));
  AddValue(family, {}, value);
  return family;
}

prometheus::MetricFamily OneCounter(std::string name, std::string help, double value) {
  prometheus::MetricFamily family = Counter(std::move(name), std::move(help));
  AddValue(family, {}, value);
  return family;
}

double Seconds(int64_t microseconds) {
  return static_cast<double>(microseconds) / kMicrosecondsOfSecond;
}

}  // namespace trainyard::metrics
