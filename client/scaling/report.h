// The scaling report compares what was measured with what was predicted and published.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/scaling/measurement.h"
#include "client/scaling/predictor.h"
#include "client/scaling/published.h"

namespace trainyard::scaling {

struct Report {
  std::string name;    // of the spec
  std::string source;  // "jobs/12", or the file
  std::string model;   // "wide_resnet"
  int64_t global_batch = 0;
  int replicas = 0;
  int64_t steps = 0;
  int runs = 1;
  bool is_bitwise = false;
  // The relative difference that final losses may have. It is used only if not is_bitwise.
  double tolerance = 0;
  std::vector<Measurement> measured;  // ascending devices, not empty

  // Speed-up and efficiency are relative to the smallest measured number of devices, for which
  // perfect scaling is assumed.
  double SamplesPerSecond(const Measurement& point) const;
  double SpeedUp(const Measurement& point) const;
  double Efficiency(const Measurement& point) const;
  // Returns a share in [0, 1], or nothing if no communication was reported.
  std::optional<double> HiddenFraction(const Measurement& point) const;
  bool Agrees(const Measurement& point) const;
  bool AllAgree() const;

  std::optional<Costs> costs() const { return CostsOf(measured, replicas); }
  // Returns samples a second. If `devices` exceeds the replicas of the job, the speed is that of as
  // many devices as replicas.
  std::optional<double> PredictedSpeed(int devices) const;
  // Returns numbers of devices beyond the measured ones for which a prediction is of interest.
  std::vector<int> Beyond() const;
  // Returns what makes the report doubtful, in sentences without a full stop: a machine that did
  // something else too, and a prediction that misses what was measured.
  std::vector<std::string> Warnings() const;
};

// Returns a table and some lines of text, for people.
std::string ReportText(const Report& report);
// Returns one JSON object; docs/cli.md lists its fields.
std::string ReportJson(const Report& report);

}  // namespace trainyard::scaling
