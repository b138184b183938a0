// Predicts the speed on more devices from measurements on few, by pure functions.
//
// The time of a step on n devices that share R replicas of the batch is
//
//   t(n)       = fixed + compute(n) + exposed(n)
//   compute(n) = c * ceil(R / n) / R         c: the whole batch on one device
//   comm(n)    = 2 (n - 1) / n * G / B       gradients of G bytes over a line of B bytes a second
//   exposed(n) = max(w * compute(n), comm(n) - 2/3 compute(n))
//
// Communication hides behind the backward pass, which is two thirds of the computation. The time
// that ranks still wait for each other grows with the computation, by the share w. The model
// assumes equal devices with processors and memory of their own.
#pragma once

#include <optional>
#include <vector>

#include "client/scaling/measurement.h"

namespace trainyard::scaling {

struct Costs {
  double compute_seconds = 0;  // c
  // The update, the data and bookkeeping take the same time on any number of devices.
  double fixed_seconds = 0;
  double gradient_bytes = 0;    // G
  double link_bytes_per_s = 0;  // B; 0 means unknown, and communication then costs nothing
  double wait_share = 0;        // w
  int replicas = 1;             // R
};

struct Prediction {
  int devices = 0;
  double step_seconds = 0;
  double compute_seconds = 0;
  double comm_seconds = 0;
  double exposed_seconds = 0;
};

// Derives the costs from measurements. One device gives the computation and the fixed part; the
// smallest number above one gives the bandwidth. Returns nothing if one device was not measured.
std::optional<Costs> CostsOf(const std::vector<Measurement>& measured, int replicas);

// Returns nothing for more devices than replicas, and for fewer than one device.
std::optional<Prediction> Predict(const Costs& costs, int devices);

}  // namespace trainyard::scaling
