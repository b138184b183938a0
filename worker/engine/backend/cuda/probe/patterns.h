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

// The images of the patterns, and the channels of their convolutions.
inline constexpr int64_t kRows = 128;
inline constexpr int64_t kChannels = 64;
inline constexpr int64_t kSize = 32;

}  // namespace trainyard::engine::cuda::probe
