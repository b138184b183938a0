// The model zoo: plain functions that build a forward graph ending in logits and the mean softmax
// cross-entropy loss. Parameter names and semantics are PyTorch's.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// linear-relu for each hidden width, then a linear classifier: fc1, fc2, ... fcN. The input is
// flattened.
struct MlpSpec {
  Shape input;  // of one sample, for example {1, 28, 28}
  std::vector<int64_t> hidden = {};
  int64_t classes = 10;
};
absl::StatusOr<Graph> BuildMlp(const MlpSpec& spec);

// conv1 3x3 (padding 1) - relu - max_pool 2x2 - conv2 3x3 (padding 1) - relu - max_pool 2x2 - fc.
// With batch_norm, bn1 and bn2 stand between convolution and relu (and the convolutions have no
// bias).
struct ConvnetSpec {
  Shape input;                               // {channels, height, width}
  std::vector<int64_t> channels = {32, 64};  // of conv1 and conv2
  int64_t classes = 10;
  bool batch_norm = false;
};
absl::StatusOr<Graph> BuildConvnet(const ConvnetSpec& spec);

// PyTorch's default initialisation (Kaiming uniform with a = sqrt(5), i.e. U(-1/sqrt(fan_in),
// 1/sqrt(fan_in)) for weights and biases; batch norm 1 and 0, running mean 0 and variance 1), from
// a counter-based random stream keyed by (seed, parameter name, element): the same on every machine
// and for any number of devices.
absl::Status InitializeParameters(uint64_t seed, Executable& executable);

}  // namespace trainyard::engine
