// What more devices would give, from what few have shown. Pure.
//
// The time of a step on n devices that share R replicas of the batch:
//
//   t(n)       = fixed + compute(n) + exposed(n)
//   compute(n) = c * ceil(R / n) / R         c: the whole batch on one device
//   comm(n)    = 2 (n - 1) / n * G / B       gradients of G bytes over a line of B bytes a second
//   exposed(n) = max(w * compute(n), comm(n) - 2/3 compute(n))
//
// Communication hides behind the backward pass, two thirds of the computation. What ranks wait for
// each other in spite of that grows with the computation, by the share w. The model knows equal
// devices with processors and memory of their own.
#pragma once

#include <optional>
#include <vector>

#include "client/scaling/measurement.h"

namespace trainyard::scaling {

struct Costs {
  double compute_seconds = 0;   // c
  double fixed_seconds = 0;     // update, data, bookkeeping: the same on any number of devices
  double gradient_bytes = 0;    // G
  double link_bytes_per_s = 0;  // B; 0: not known, communication counts as free
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

// One device gives computation and fixed part, the fewest of several the line between them. None
// where nothing was measured on one device.
std::optional<Costs> CostsOf(const std::vector<Measurement>& measured, int replicas);

// None for more devices than replicas, and for fewer than one.
std::optional<Prediction> Predict(const Costs& costs, int devices);

}  // namespace trainyard::scaling
