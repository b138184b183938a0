// What a planner may take, and where it keeps what it chose.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::engine::cuda::dnn {

struct PlannerOptions {
  // A small ceiling silently drops the fast engines.
  int64_t workspace_bytes_max = int64_t{256} << 20;
  // Measure candidates on the device; takes memory while it does.
  bool autotunes = true;
  int candidates_max = 8;  // that are measured
  // Leaves out engines whose sums are taken in another order each time.
  bool deterministic = false;
  // Where choices are kept; empty: nowhere. Read and written whole, by rename; a file that cannot
  // be read is as good as none.
  std::string cache_path;
};

}  // namespace trainyard::engine::cuda::dnn
