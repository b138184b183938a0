// Implements the roofline model. Convolutions of 3x3 have rates of their own, since backends
// compute them by minimal filtering, with fewer multiplications than the count of FLOPs says.
#include "worker/trainer/plan/roofline.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

namespace trainyard::trainer {
namespace {

// Minimal filtering computes tiles of 4x4 results, and fills up what an image does not fill.
constexpr int64_t kTileSide = 4;
// It computes blocks of so many channels. Backends compute narrower convolutions directly.
constexpr int64_t kChannelBlock = 16;

double Seconds(const engine::Cost& cost, double flops_per_second, const MachineSpeed& machine) {
  if (machine.flops_per_second <= 0) return 0;
  return std::max(cost.flops / flops_per_second, cost.bytes / machine.bytes_per_second);
}

// The shapes [C, H, W] that a convolution, or one of its gradients, is between.
struct ConvShapes {
  const engine::Shape& x;
  const engine::Shape& y;
};
ConvShapes ShapesOf(const engine::Graph& graph, const engine::Node& node) {
  const auto shape = [&graph](engine::ValueId id) -> const engine::Shape& {
    return graph.value(id).shape;
  };
  switch (node.op) {
    case engine::OpKind::kConv2dInputGradient:
      return {shape(node.outputs[0]), shape(node.inputs[0])};
    case engine::OpKind::kConv2dParameterGradient:
      return {shape(node.inputs[1]), shape(node.inputs[0])};
    default:
      return {shape(node.inputs[0]), shape(node.outputs[0])};
  }
}

// Returns the rate between those that were measured, on logarithmic scales: it falls as the weights
// leave one cache after the other.
double RateOf(double weights, const MachineSpeed& machine) {
  constexpr auto kNarrowWeights = static_cast<double>(kNarrowChannels * kNarrowChannels);
  constexpr auto kWideWeights = static_cast<double>(kWideChannels * kWideChannels);
  const double part = std::clamp(
      std::log(weights / kNarrowWeights) / std::log(kWideWeights / kNarrowWeights), 0.0, 1.0);
  return machine.filtered_flops_per_second *
         std::pow(machine.wide_filtered_flops_per_second / machine.filtered_flops_per_second, part);
}

// Returns the speed in a convolution that backends compute by minimal filtering if they can, and
// nothing for others.
std::optional<double> FilteredFlopsPerSecond(const engine::Graph& graph, const engine::Node& node,
                                             const MachineSpeed& machine) {
  const auto* conv = std::get_if<engine::ConvAttributes>(&node.attributes);
  if (machine.filtered_flops_per_second <= 0 || conv == nullptr || conv->kernel != 3 ||
      conv->stride != 1 || conv->dilation != 1 || conv->groups != 1) {
    return std::nullopt;
  }
  if (machine.wide_filtered_flops_per_second <= 0) return machine.filtered_flops_per_second;
  const auto [x, y] = ShapesOf(graph, node);
  if (std::min(x[0], y[0]) < kChannelBlock) return std::nullopt;
  const auto filled = [](int64_t side) {
    const int64_t tiles = (side + kTileSide - 1) / kTileSide;
    return static_cast<double>(side) / static_cast<double>(tiles * kTileSide);
  };
  return RateOf(static_cast<double>(x[0] * y[0]), machine) * filled(y[1]) * filled(y[2]);
}

}  // namespace

double CostSeconds(const engine::Cost& cost, const MachineSpeed& machine) {
  return Seconds(cost, machine.flops_per_second, machine);
}

double NodeSeconds(const engine::Graph& graph, const engine::Node& node, int64_t rows,
                   const MachineSpeed& machine) {
  const std::optional<double> filtered = FilteredFlopsPerSecond(graph, node, machine);
  return Seconds(engine::NodeCost(graph, node, rows), filtered.value_or(machine.flops_per_second),
                 machine);
}

}  // namespace trainyard::trainer
