// Defines the port to the training state of a model: named tensors that can be read and written.
//
// Every executable has it. Checkpoints and initial weights need nothing more, so they also work on
// a state that no executable computes with.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// A named tensor of the training state, in PyTorch's layout: convolutions are OIHW, weights of
// linear layers are [out, in].
struct StateTensor {
  enum class Kind { kParameter, kBuffer, kOptimizerSlot, kAverage };
  Kind kind = Kind::kParameter;
  // The name: parameter "conv1.weight", buffer "bn1.running_mean", slot "momentum.conv1.weight" or
  // "step", moving average "ema.conv1.weight".
  std::string name;
  Shape shape;
  // Used for a parameter, and for a slot that does not begin with zeros.
  Initializer initializer = {};
};
inline constexpr absl::string_view kAveragePrefix = "ema.";

class ModelState {
 public:
  virtual ~ModelState() = default;

  // Returns all tensors in a fixed order: parameters in graph order, buffers, optimizer slots,
  // moving averages.
  virtual const std::vector<StateTensor>& state() const = 0;
  // Reads a tensor. `index` is an index into state(); `values` has as many elements as the tensor.
  virtual absl::Status ReadState(size_t index, absl::Span<float> values) const = 0;
  virtual absl::Status WriteState(size_t index, absl::Span<const float> values) = 0;
};

}  // namespace trainyard::engine
