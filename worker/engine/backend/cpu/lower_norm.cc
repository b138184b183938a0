// batch_norm by our own kernels, plane by plane: any layout, no workspace. The relu's mask is
// computed again from the input, or, behind the sum of a residual connection, kept in bits. Sums
// over planes are taken in double and in one order, whatever the threads.
#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/norm_planes.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// What a pass fused into the node at this place among the inputs; nothing for place 0.
Operand FusedInput(Lowering& lowering, const Node& node, int place, const Layout& wanted) {
  return place > 0 ? lowering.OperandOf(node.inputs[static_cast<size_t>(place)], wanted)
                   : Operand{};
}

BufferId StatisticBuffer(Lowering& lowering, ValueId id) {
  return lowering.value(id).role == Role::kBuffer
             ? lowering.program().AddFixedBuffer(lowering.RunningStatistic(id))
             : lowering.BufferOf(id);
}

void LowerNormEvaluation(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[0]));
  lowering.SetLayout(node.outputs[0], x_layout);
  const Operand x = lowering.OperandOf(node.inputs[0], x_layout);
  const Operand residual = FusedInput(lowering, node, node.norm().residual, x_layout);
  const Operand y = lowering.OutputOperand(node);
  const float* weight = lowering.Parameter(node.inputs[1]);
  const float* bias = lowering.Parameter(node.inputs[2]);
  // Running, or those of the batch.
  const BufferId mean = StatisticBuffer(lowering, node.inputs[3]);
  const BufferId variance = StatisticBuffer(lowering, node.inputs[4]);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  const BufferId affine = lowering.AddScratch(TableBytes(lowering.step().max_groups * lanes, 2));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const Normalization<T> normalization = {kernels,
                                            x_layout,
                                            rows,
                                            *state.groups,
                                            threads,
                                            relu,
                                            At<T>(*program, x, x_layout),
                                            program->ptr<float>(affine),
                                            At<T>(*program, residual, x_layout),
                                            At<T>(*program, y, x_layout),
                                            nullptr};
    normalization.FillAffine(weight, bias, program->ptr<float>(mean), program->ptr<float>(variance),
                             eps);
    normalization.Run();
  };
  lowering.EmitKernels(node, run, {x.buffer, y.buffer, affine, residual.buffer, mean, variance});
}

void LowerNormOfBatch(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[0]));
  lowering.SetLayout(node.outputs[0], x_layout);
  const Operand x = lowering.OperandOf(node.inputs[0], x_layout);
  const Operand residual = FusedInput(lowering, node, node.norm().residual, x_layout);
  const Operand y = lowering.OutputOperand(node);
  const BufferId mean = lowering.BufferOf(node.outputs[1]);
  const BufferId variance = lowering.BufferOf(node.outputs[2]);
  BufferId mask = kNoBuffer;
  if (residual.buffer != kNoBuffer) {
    lowering.SetLayout(node.outputs[3], x_layout);
    mask = lowering.BufferOf(node.outputs[3]);
  }
  const float* weight = lowering.Parameter(node.inputs[1]);
  const float* bias = lowering.Parameter(node.inputs[2]);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  // Mean and squared distances of each plane; then scale and shift of each group's lanes.
  const BufferId moments = lowering.AddScratch(TableBytes(lowering.rows() * lanes, 2));
  const BufferId affine = lowering.AddScratch(TableBytes(lowering.step().max_groups * lanes, 2));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const int64_t block = x_layout.block;
    const Planes<T> from = At<T>(*program, x, x_layout);
    float* means = program->ptr<float>(moments);
    float* distances = means + rows * lanes;
    ParallelFor(threads, rows * x_layout.blocks(), [&](int64_t p) {
      kernels.moments(x_layout.plane(), block, from[p], means + p * block, distances + p * block);
    });
    state.status = PlaneMoments{x_layout, rows, means, distances}.Merge(
        state, program->ptr<float>(mean), program->ptr<float>(variance));
    if (!state.status.ok()) {
      return;
    }
    const Normalization<T> normalization = {kernels,
                                            x_layout,
                                            rows,
                                            *state.groups,
                                            threads,
                                            relu,
                                            from,
                                            program->ptr<float>(affine),
                                            At<T>(*program, residual, x_layout),
                                            At<T>(*program, y, x_layout),
                                            program->ptr_or_null<uint8_t>(mask)};
    normalization.FillAffine(weight, bias, program->ptr<float>(mean), program->ptr<float>(variance),
                             eps);
    normalization.Run();
  };
  lowering.EmitKernels(
      node, run, {x.buffer, y.buffer, mean, variance, moments, affine, residual.buffer, mask});
}

// Where the operands of a gradient of batch_norm lie.
struct NormGradientPlaces {
  Operand dy, x, second, addend, g, dx;
  BufferId mean = kNoBuffer;
  BufferId variance = kNoBuffer;
  BufferId mask = kNoBuffer;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* weight_sums = nullptr;
  float* bias_sums = nullptr;
};

NormGradientPlaces PlaceNormGradient(Lowering& lowering, const Node& node, const Layout& layout) {
  const NormAttributes& norm = node.norm();
  NormGradientPlaces at;
  at.dy = lowering.OperandOf(node.inputs[0], layout);
  at.x = lowering.OperandOf(node.inputs[1], layout);
  at.weight = lowering.Parameter(node.inputs[2]);
  at.mean = lowering.BufferOf(node.inputs[3]);
  at.variance = lowering.BufferOf(node.inputs[4]);
  at.bias =
      norm.bias > 0 ? lowering.Parameter(node.inputs[static_cast<size_t>(norm.bias)]) : nullptr;
  at.mask =
      norm.mask > 0 ? lowering.BufferOf(node.inputs[static_cast<size_t>(norm.mask)]) : kNoBuffer;
  at.second = FusedInput(lowering, node, norm.second_gradient, layout);
  at.addend = FusedInput(lowering, node, norm.addend, layout);
  if (at.mask != kNoBuffer) {
    lowering.SetLayout(node.outputs[3], layout);
    at.g = lowering.OutputOperand(node, 3);
  }
  if (node.outputs[0] != kNoValue) {
    lowering.SetLayout(node.outputs[0], layout);
    at.dx = lowering.OutputOperand(node);
  }
  at.weight_sums = lowering.GradientSums(node.outputs[1]);
  at.bias_sums = lowering.GradientSums(node.outputs[2]);
  return at;
}

}  // namespace

void LowerBatchNorm(Lowering& lowering, const Node& node) {
  if (node.norm().batch_statistics) {
    LowerNormOfBatch(lowering, node);
  } else {
    LowerNormEvaluation(lowering, node);
  }
}

void LowerBatchNormGradient(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[1]));
  const NormGradientPlaces at = PlaceNormGradient(lowering, node, x_layout);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  const BufferId sums = lowering.AddScratch(TableBytes(lowering.rows() * lanes, 2));
  const BufferId tables = lowering.AddScratch(TableBytes(lowering.step().max_groups * lanes, 6));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const double eps = node.norm().eps;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const NormGradient<T> gradient = {kernels,
                                      x_layout,
                                      rows,
                                      state,
                                      threads,
                                      eps,
                                      at.weight,
                                      at.bias,
                                      program->ptr<float>(at.mean),
                                      program->ptr<float>(at.variance),
                                      At<T>(*program, at.dy, x_layout),
                                      At<T>(*program, at.x, x_layout),
                                      At<T>(*program, at.second, x_layout),
                                      program->ptr_or_null<uint8_t>(at.mask),
                                      At<T>(*program, at.g, x_layout),
                                      At<T>(*program, at.addend, x_layout),
                                      At<T>(*program, at.dx, x_layout),
                                      program->ptr<float>(sums),
                                      program->ptr<float>(tables),
                                      at.weight_sums,
                                      at.bias_sums};
    gradient.FillForwardTables();
    gradient.SumPlanes();
    state.status = gradient.Finish();
    if (state.status.ok() && at.dx.buffer != kNoBuffer) {
      gradient.WriteInputGradient();
    }
  };
  lowering.EmitKernels(node, run,
                       {at.dy.buffer, at.x.buffer, at.mean, at.variance, sums, tables, at.mask,
                        at.second.buffer, at.addend.buffer, at.g.buffer, at.dx.buffer});
}

}  // namespace trainyard::engine::cpu
