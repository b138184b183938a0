// What a planner may take of the device, and where it keeps its choices.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::engine::cuda::dnn {

struct PlannerOptions {
  // A small ceiling silently drops the fast engines.
  int64_t workspace_bytes_max = int64_t{256} << 20;
  // Measures candidates on the device, which takes memory meanwhile.
  bool autotunes = true;
  int candidates_max = 8;  // the most that are measured
  // Leaves out engines whose sums are taken in another order each time.
  bool deterministic = false;
  // Where choices are kept; empty: nowhere. The file is read and written as a whole, by rename. A
  // file that cannot be read is ignored.
  std::string cache_path;
};

}  // namespace trainyard::engine::cuda::dnn
