// The scaling report: what was measured beside what was predicted and published.
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
  double tolerance = 0;               // of final losses; without is_bitwise
  std::vector<Measurement> measured;  // ascending devices, not empty

  // Against the fewest devices, which count as if they scaled perfectly up to there.
  double SamplesPerSecond(const Measurement& point) const;
  double SpeedUp(const Measurement& point) const;
  double Efficiency(const Measurement& point) const;
  // In [0, 1]; none where no communication was reported.
  std::optional<double> HiddenFraction(const Measurement& point) const;
  bool Agrees(const Measurement& point) const;
  bool AllAgree() const;

  std::optional<Costs> costs() const { return CostsOf(measured, replicas); }
  // Samples a second. `devices` may be more than the replicas of the job: then with as many of
  // those.
  std::optional<double> PredictedSpeed(int devices) const;
  // Numbers of devices beyond what was measured, for which a prediction is of interest.
  std::vector<int> Beyond() const;
};

// A table and some lines, for people.
std::string ReportText(const Report& report);
// One object; docs/cli.md lists the fields.
std::string ReportJson(const Report& report);

}  // namespace trainyard::scaling
