// Knows for which graphs with batch norm around a convolution cuDNN has engines. They look for the
// same operations, types and layouts each time, and every other graph is refused: see
// docs/cudnn_patterns.md.
#include <algorithm>

#include "tests/testing/cuda_on_cpu/cudnn/program.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

const Operation* MakerOf(const Program& program, const TensorSpec& tensor) {
  for (const auto& operation : program.operations) {
    for (const TensorSpec& output : operation->outputs) {
      if (output.id == tensor.id) return operation.get();
    }
  }
  return nullptr;
}

// Returns the pointwise operation of this mode that makes the tensor, or null.
const Operation* MakerOf(const Program& program, const TensorSpec& tensor,
                         cudnnPointwiseMode_t mode) {
  const Operation* const maker = MakerOf(program, tensor);
  return maker != nullptr && maker->pointwise == mode ? maker : nullptr;
}

// The channels of a pixel follow each other, and those of the next pixel follow them.
bool IsImage(const TensorSpec& tensor, cudnnDataType_t type) {
  return tensor.rank() == 4 && tensor.strides[1] == 1 && tensor.strides[3] == tensor.dims[1] &&
         tensor.type == type;
}

bool IsOfChannels(const TensorSpec& tensor, const TensorSpec& image, cudnnDataType_t type) {
  return !tensor.is_virtual && tensor.type == type &&
         tensor.dims == std::vector<int64_t>{1, image.dims[1], 1, 1};
}

bool IsOfOperations(const Program& program, size_t count) {
  return program.operations.size() == count;
}

// Returns true if the convolution reads relu(x scale + shift) and its results go nowhere else but
// into statistics.
bool IsNormalised(const Program& program, const Operation& convolution) {
  const bool is_forward = convolution.convolution->kind == ConvolutionShape::Kind::kForward;
  const Operation* const relu = MakerOf(program, convolution.inputs[0], CUDNN_POINTWISE_RELU_FWD);
  const Operation* const add =
      relu == nullptr ? nullptr : MakerOf(program, relu->inputs[0], CUDNN_POINTWISE_ADD);
  const Operation* const multiply =
      add == nullptr ? nullptr : MakerOf(program, add->inputs[0], CUDNN_POINTWISE_MUL);
  if (multiply == nullptr || convolution.convolution->groups != 1) return false;
  const TensorSpec& x = multiply->inputs[0];
  // Weight gradients have engines for f16 alone, and those write f16.
  if (!is_forward && x.type != CUDNN_DATA_HALF) return false;
  const bool has_statistics =
      std::any_of(program.operations.begin(), program.operations.end(), [](const auto& operation) {
        return operation->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
      });
  return !x.is_virtual && IsImage(x, x.type) && IsImage(convolution.inputs[0], x.type) &&
         IsOfChannels(multiply->inputs[1], x, x.type) && IsOfChannels(add->inputs[1], x, x.type) &&
         IsImage(convolution.inputs[1], x.type) && IsImage(convolution.outputs[0], x.type) &&
         IsOfOperations(program, is_forward && has_statistics ? 5 : 4);
}

// Returns true if the sums are taken over a gradient that a convolution makes and a rectifier lets
// through, by the sign of the norm's output.
bool IsOverGradient(const Program& program, const Operation& sums) {
  const TensorSpec& x = sums.inputs[0];
  const TensorSpec& dy = sums.inputs[4];
  const Operation* const relu = MakerOf(program, dy, CUDNN_POINTWISE_RELU_BWD);
  if (relu == nullptr || relu->inputs.size() != 2) return false;
  const Operation* const convolution = MakerOf(program, relu->inputs[1]);
  const Operation* step = MakerOf(program, relu->inputs[0], CUDNN_POINTWISE_ADD);
  if (convolution == nullptr || !convolution->convolution.has_value() || step == nullptr ||
      convolution->convolution->kind != ConvolutionShape::Kind::kInputGradient ||
      !IsOfChannels(step->inputs[1], x, CUDNN_DATA_FLOAT)) {
    return false;
  }
  // The norm's output, from its end: times scale, times the inverse deviation, less the mean.
  const std::pair<cudnnPointwiseMode_t, size_t> kSteps[] = {
      {CUDNN_POINTWISE_MUL, 3}, {CUDNN_POINTWISE_MUL, 2}, {CUDNN_POINTWISE_SUB, 1}};
  for (const auto& [mode, operand] : kSteps) {
    step = MakerOf(program, step->inputs[0], mode);
    if (step == nullptr || step->inputs[1].id != sums.inputs[operand].id ||
        !IsOfChannels(step->inputs[1], x, CUDNN_DATA_FLOAT)) {
      return false;
    }
  }
  const bool is_f32 = std::all_of(
      sums.outputs.begin(), sums.outputs.end(),
      [&](const TensorSpec& output) { return IsOfChannels(output, x, CUDNN_DATA_FLOAT); });
  return is_f32 && step->inputs[0].id == x.id && !x.is_virtual && !dy.is_virtual &&
         IsImage(x, CUDNN_DATA_HALF) && IsImage(dy, CUDNN_DATA_HALF) &&
         IsImage(convolution->inputs[0], CUDNN_DATA_HALF) &&
         IsImage(convolution->inputs[1], CUDNN_DATA_HALF) &&
         convolution->convolution->groups == 1 && IsOfOperations(program, 7);
}

}  // namespace

bool HasUnknownNormFusion(const Program& program) {
  return std::any_of(program.operations.begin(), program.operations.end(), [&](const auto& each) {
    if (each->type == CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR) {
      return !IsOverGradient(program, *each);
    }
    return each->convolution.has_value() &&
           each->convolution->kind != ConvolutionShape::Kind::kInputGradient &&
           each->inputs[0].is_virtual && !IsNormalised(program, *each);
  });
}

}  // namespace trainyard::cuda_on_cpu::cudnn
