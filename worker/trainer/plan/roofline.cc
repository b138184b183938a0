// Implements the roofline model. Convolutions of 3x3 have a rate of their own, since backends
// compute them by minimal filtering, with fewer multiplications than the count of FLOPs says.
#include "worker/trainer/plan/roofline.h"

#include <algorithm>
#include <variant>

namespace trainyard::trainer {
namespace {

double Seconds(const engine::Cost& cost, double flops_per_second, const MachineSpeed& machine) {
  if (machine.flops_per_second <= 0) return 0;
  return std::max(cost.flops / flops_per_second, cost.bytes / machine.bytes_per_second);
}

// Backends compute such a convolution by minimal filtering if they can.
bool IsFiltered(const engine::Node& node) {
  const auto* conv = std::get_if<engine::ConvAttributes>(&node.attributes);
  return conv != nullptr && conv->kernel == 3 && conv->stride == 1 && conv->dilation == 1 &&
         conv->groups == 1;
}

}  // namespace

double CostSeconds(const engine::Cost& cost, const MachineSpeed& machine) {
  return Seconds(cost, machine.flops_per_second, machine);
}

double NodeSeconds(const engine::Graph& graph, const engine::Node& node, int64_t rows,
                   const MachineSpeed& machine) {
  const bool has_rate = IsFiltered(node) && machine.filtered_flops_per_second > 0;
  return Seconds(engine::NodeCost(graph, node, rows),
                 has_rate ? machine.filtered_flops_per_second : machine.flops_per_second, machine);
}

}  // namespace trainyard::trainer
