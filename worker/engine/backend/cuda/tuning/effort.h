// Says how much work a choice among kernels is worth.
#pragma once

namespace trainyard::engine::cuda {

enum class Effort {
  // Candidates are measured on the device, if the planner measures at all. That takes up to seconds
  // for each problem, so nobody may wait for it.
  kMeasure,
  // Nothing is measured. The choice for the same problem with another number of rows is taken over,
  // if there is one, and else the library's first proposal is taken.
  kInherit,
};

}  // namespace trainyard::engine::cuda
