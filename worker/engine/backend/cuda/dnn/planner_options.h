// Defines what a planner may take of the device, and where it keeps its choices.
#pragma once

#include <cstdint>
#include <string>

#include "worker/engine/backend/cuda/dnn/arbiter.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::cuda::dnn {

struct PlannerOptions {
  // The largest workspace. A small limit silently drops the fast engines.
  int64_t workspace_bytes_max = int64_t{256} << 20;
  // If true, candidates are measured on the device where Effort::kMeasure asks for it, which takes
  // memory during that time.
  bool autotunes = true;
  int candidates_max = 8;  // the most that are measured
  // The threads that build candidates; at least 1. Each has a handle of its own, which takes memory
  // of the device until Planner::EndChoosing.
  int build_threads = 1;
  // If true, engines are left out whose sums are taken in another order each time.
  bool deterministic = false;
  // The folder in which choices are kept, or empty if they are not.
  std::string cache_folder = {};
  PlanScrutiny scrutiny = {};
  // Judges the candidates if scrutiny verifies them; null if they are only to be compared with each
  // other. It must outlive the planner.
  const Arbiter* arbiter = nullptr;
};

}  // namespace trainyard::engine::cuda::dnn
