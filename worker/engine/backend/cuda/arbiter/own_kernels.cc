// Computes problems of cuDNN by the kernels that also serve where cuDNN has no plan. What those
// write in f32 only is converted, and statistics are taken over y as it was rounded.
#include "worker/engine/backend/cuda/arbiter/own_kernels.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/engine/backend/cuda/kernels/convolution.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/sequence.h"

namespace trainyard::engine::cuda {
namespace {

using dnn::AttentionMemory;
using dnn::AttentionProblem;
using dnn::ConvMemory;
using dnn::ConvProblem;

absl::Status StatusOfLaunches() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("launching our own kernel: ", cudaGetErrorString(error)));
}

ImageShape InputOf(const ConvProblem& p) {
  return {p.rows, p.channels, p.height, p.width};
}
ImageShape OutputOf(const ConvProblem& p) {
  return {p.rows, p.out_channels, p.out_height, p.out_width};
}

ConvShape ShapeOf(const ConvProblem& p) {
  return {.in = InputOf(p),
          .out = OutputOf(p),
          .kernel = p.kernel,
          .stride = p.stride,
          .padding = p.padding,
          .dilation = p.dilation,
          .groups = p.groups,
          .weight_stride = p.channels / p.groups};
}

int64_t WeightElements(const ConvProblem& p) {
  return p.out_channels * p.kernel * p.kernel * (p.channels / p.groups);
}

Type GradientType(const ConvProblem& p) {
  return p.f32_gradient ? Type::kF32 : p.type;
}

// Writes the sums and the sums of squares of y over its pixels. The latter are the gradient of the
// weight of a convolution 1x1 that scales each channel by itself, where both x and dy are y.
void SumOutputs(const ConvProblem& p, const ConvMemory& memory, void* workspace,
                cudaStream_t stream) {
  const View y = {memory.y, p.y_stride, p.type};
  const ImageShape image = OutputOf(p);
  auto* const tickets = static_cast<uint32_t*>(workspace);
  (void)cudaMemsetAsync(tickets, 0, kNormTickets, stream);
  ColumnSum(y, image.pixels(), image.channels, /*adds=*/false, memory.sum,
            static_cast<char*>(workspace) + kNormTickets, tickets, PackedGradient(), stream);
  const ConvShape squares = {
      .in = image, .out = image, .groups = image.channels, .weight_stride = 1};
  ConvWeightGradient(squares, y, y, memory.square_sum, /*adds=*/false, stream);
}

AttentionShape ShapeOf(const AttentionProblem& p) {
  return {p.rows, p.positions, p.heads, p.width};
}

class KernelArbiter : public dnn::Arbiter {
 public:
  int64_t WorkspaceBytes(const ConvProblem& p) const override {
    if (p.statistics) {
      return kNormTickets + ColumnSumWorkspace(OutputOf(p).pixels(), p.out_channels);
    }
    const bool converts =
        p.kind == ConvProblem::Kind::kWeightGradient && GradientType(p) != Type::kF32;
    return converts ? WeightElements(p) * SizeOf(Type::kF32) : 0;
  }

  int64_t WorkspaceBytes(const AttentionProblem& p) const override {
    return p.is_gradient ? AttentionGradientWorkspace(ShapeOf(p)) : 0;
  }

  absl::Status Run(const ConvProblem& p, const ConvMemory& memory, void* workspace,
                   cudaStream_t stream) const override {
    if (p.normalises || p.norm_sums) {
      return absl::UnimplementedError("our own kernels have no batch norm within a convolution");
    }
    const ConvShape shape = ShapeOf(p);
    const View x = {memory.x, p.x_stride, p.type};
    const View y = {memory.y, p.y_stride, p.type};
    switch (p.kind) {
      case ConvProblem::Kind::kForward:
        ConvForward(shape, x, memory.weight, memory.bias, p.relu, y, /*clears_padding=*/false,
                    stream);
        if (p.statistics) SumOutputs(p, memory, workspace, stream);
        break;
      case ConvProblem::Kind::kInputGradient:
        ConvInputGradient(shape, y, memory.weight, x, /*clears_padding=*/false, stream);
        break;
      case ConvProblem::Kind::kWeightGradient:
        RunWeightGradient(p, shape, x, y, memory.weight, workspace, stream);
        break;
    }
    return StatusOfLaunches();
  }

  absl::Status Run(const AttentionProblem& p, const AttentionMemory& memory, void* workspace,
                   cudaStream_t stream) const override {
    const AttentionShape shape = ShapeOf(p);
    const View x = {memory.x, 3 * p.heads * p.width, p.type};
    const View dx = {memory.dx, x.stride, p.type};
    const View y = {memory.y, p.heads * p.width, p.type};
    const View dy = {memory.dy, y.stride, p.type};
    AttentionForward(shape, x, y, memory.logsum, stream);
    if (p.is_gradient) {
      AttentionGradient(shape, dy, x, memory.logsum, dx, workspace, stream);
    }
    return StatusOfLaunches();
  }

 private:
  static void RunWeightGradient(const ConvProblem& p, const ConvShape& shape, View x, View dy,
                                void* gradient, void* workspace, cudaStream_t stream) {
    const bool converts = GradientType(p) != Type::kF32;
    void* const sums = converts ? workspace : gradient;
    ConvWeightGradient(shape, dy, x, static_cast<float*>(sums), /*adds=*/false, stream);
    if (!converts) return;
    const int64_t count = WeightElements(p);
    Copy({sums, count, Type::kF32}, {gradient, count, p.type}, 1, count, /*clears_padding=*/false,
         stream);
  }
};

}  // namespace

const dnn::Arbiter& OwnKernels() {
  static const KernelArbiter arbiter;
  return arbiter;
}

}  // namespace trainyard::engine::cuda
