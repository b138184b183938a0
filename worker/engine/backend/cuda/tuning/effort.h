// Says how much work a choice among kernels is worth.
#pragma once

namespace trainyard::engine::cuda {

enum class Effort {
  // Candidates are measured on the device, if the planner measures at all. That takes up to seconds
  // for each problem, so it must not happen while other ranks wait.
  kMeasure,
  // Nothing is measured. A planner may take over the choice that was measured for the same problem
  // with more rows. Otherwise the library's first proposal is taken.
  kInherit,
  // Nothing is built either, so a plan cannot be run: it only tells the memory that it would take.
  // cuDNN compiles some engines when they are built, which takes up to two seconds for each.
  kEstimate,
};

}  // namespace trainyard::engine::cuda
