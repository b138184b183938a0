// Operations, compiled from their descriptors: their inputs, their outputs and their work.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"
#include "tests/testing/cuda_on_cpu/cudnn/tensor.h"

namespace trainyard::cuda_on_cpu::cudnn {

struct Operation {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::optional<ConvolutionShape> convolution;
  std::optional<cudnnPointwiseMode_t> pointwise;
  std::function<void(Memory*)> run;
};

// Each of these checks the tensors against each other and fills `operation`, except for its type.
// It returns BAD_PARAM if the tensors cannot belong together, and NOT_SUPPORTED for what the
// emulation does not have.
cudnnStatus_t CompileConvolution(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompilePointwise(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileReduction(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileGenStats(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileReshape(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileMatmul(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileFinalizeStatistics(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileNormForward(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileNormBackward(const Descriptor& descriptor, Operation* operation);
// Its inputs are x, mean, inverse deviation, scale and dy, in this order.
cudnnStatus_t CompileNormSums(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileResample(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileAttentionForward(const Descriptor& descriptor, Operation* operation);
cudnnStatus_t CompileAttentionBackward(const Descriptor& descriptor, Operation* operation);

// Returns the tensor behind an attribute, or nothing if it was not set.
std::optional<TensorSpec> FindTensor(const Descriptor& descriptor,
                                     cudnnBackendAttributeName_t name);

// "2x8x4x4", for messages.
std::string ShapeText(const std::vector<int64_t>& dims);

// BAD_PARAM_SHAPE_MISMATCH, with the message, where `is_right` is false.
cudnnStatus_t ExpectShape(bool is_right, const std::string& message);

// Returns NOT_SUPPORTED if `type` is not float, since the emulation computes in f32.
cudnnStatus_t ExpectFloatMath(int64_t type);

}  // namespace trainyard::cuda_on_cpu::cudnn
