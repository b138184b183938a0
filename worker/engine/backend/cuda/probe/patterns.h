// Declares the graphs that trainyard-probe tries: those that the backend asks for, and some that it
// might.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/dnn/graph.h"

namespace trainyard::engine::cuda::probe {

struct Pattern {
  std::string name;
  std::function<absl::StatusOr<dnn::Graph>(Type type, bool tf32, cudnnHandle_t handle)> build;
};

// Returns the convolutions of the planner, on 128 images of 64 channels, 32 x 32, with 3 x 3
// kernels.
std::vector<Pattern> ConvPatterns();
// Returns convolutions with batch norm on one or both sides, on the same images.
std::vector<Pattern> FusedConvPatterns();
// Returns batch norm, layer norm and pooling.
std::vector<Pattern> NormPatterns();
std::vector<Pattern> ResamplePatterns();
// Returns attention of 4 rows of 1,024 positions, with 12 heads of 64.
std::vector<Pattern> AttentionPatterns();

// These are building blocks of the patterns above.
inline constexpr int64_t kRows = 128;
inline constexpr int64_t kChannels = 64;
inline constexpr int64_t kSize = 32;

dnn::Tensor Image(Type type, bool is_virtual = false);
// Returns a tensor of [1, C, 1, 1].
dnn::Tensor PerChannel(cudnnDataType_t type = CUDNN_DATA_FLOAT);
// Returns a weight of [K, C, 3, 3] in NHWC.
dnn::Tensor Weight(Type type);
// Adds a convolution of 3 x 3 with padding 1.
dnn::GraphBuilder::Handle Convolution(dnn::GraphBuilder& builder);

}  // namespace trainyard::engine::cuda::probe
