// Lowers batch_norm to our own kernels, plane by plane, for any layout and without workspace. The
// relu's mask is computed again from the input, or, after the sum of a residual connection, kept in
// bits. Sums over planes are taken in double and in one order, whatever the number of threads.
#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/norm_planes.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Returns what a pass has fused into the node at this place among the inputs, or nothing for place
// 0.
Operand FusedInput(Lowering& lowering, const Node& node, int place, const Layout& wanted) {
  return place > 0 ? lowering.OperandOf(node.inputs[static_cast<size_t>(place)], wanted)
                   : Operand{};
}

BufferId StatisticBuffer(Lowering& lowering, ValueId id) {
  return lowering.value(id).role == Role::kBuffer
             ? lowering.program().AddFixedBuffer(lowering.RunningStatistic(id))
             : lowering.BufferOf(id);
}

// The places of the operands of batch_norm, and what is known of it before it runs.
struct NormPlaces {
  Layout layout;
  Operand x, residual, y;
  BufferId affine = kNoBuffer;  // scale and shift of each group's lanes
  const float* weight = nullptr;
  const float* bias = nullptr;
  double eps = 0;
  bool relu = false;
  int64_t rows = 0;
  int threads = 1;

  int64_t lanes() const { return layout.blocks() * layout.block; }
};

NormPlaces PlaceNorm(Lowering& lowering, const Node& node) {
  NormPlaces at;
  at.layout = lowering.Stored(lowering.layout(node.inputs[0]));
  lowering.SetLayout(node.outputs[0], at.layout);
  at.x = lowering.OperandOf(node.inputs[0], at.layout);
  at.residual = FusedInput(lowering, node, node.norm().residual, at.layout);
  at.y = lowering.OutputOperand(node);
  at.affine = lowering.AddScratch(TableBytes(lowering.step().max_groups * at.lanes(), 2));
  at.weight = lowering.Parameter(node.inputs[1]);
  at.bias = lowering.Parameter(node.inputs[2]);
  at.eps = node.norm().eps;
  at.relu = node.relu;
  at.rows = lowering.rows();
  at.threads = lowering.threads();
  return at;
}

// Computes y from the statistics of the groups, [groups, channels].
template <class T>
void NormalizeAll(const NormPlaces& at, const Program& program, const RunState& state,
                  const Kernels<T>& kernels, const float* mean, const float* variance,
                  uint8_t* mask) {
  const Normalization<T> normalization = {kernels,
                                          at.layout,
                                          at.rows,
                                          *state.groups,
                                          at.threads,
                                          at.relu,
                                          At<T>(program, at.x, at.layout),
                                          program.ptr<float>(at.affine),
                                          At<T>(program, at.residual, at.layout),
                                          At<T>(program, at.y, at.layout),
                                          mask};
  normalization.FillAffine(at.weight, at.bias, mean, variance, at.eps);
  normalization.Run();
}

// Lowers a batch_norm whose statistics are given: the running ones, or those of the batch.
void LowerNormOfStatistics(Lowering& lowering, const Node& node) {
  const NormPlaces at = PlaceNorm(lowering, node);
  const BufferId mean = StatisticBuffer(lowering, node.inputs[3]);
  const BufferId variance = StatisticBuffer(lowering, node.inputs[4]);
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    NormalizeAll(at, *program, state, kernels, program->ptr<float>(mean),
                 program->ptr<float>(variance), nullptr);
  };
  lowering.EmitKernels(node, run,
                       {at.x.buffer, at.y.buffer, at.affine, at.residual.buffer, mean, variance});
}

void LowerNormOfBatch(Lowering& lowering, const Node& node) {
  const NormPlaces at = PlaceNorm(lowering, node);
  const BufferId mean = lowering.BufferOf(node.outputs[1]);
  const BufferId variance = lowering.BufferOf(node.outputs[2]);
  BufferId mask = kNoBuffer;
  if (at.residual.buffer != kNoBuffer) {
    lowering.SetLayout(node.outputs[3], at.layout);
    mask = lowering.BufferOf(node.outputs[3]);
  }
  // These hold the mean and the squared distances of each plane.
  const BufferId moments = lowering.AddScratch(TableBytes(at.rows * at.lanes(), 2));
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const Layout& layout = at.layout;
    const int64_t block = layout.block;
    const Planes<T> from = At<T>(*program, at.x, layout);
    float* means = program->ptr<float>(moments);
    float* distances = means + at.rows * at.lanes();
    ParallelFor(at.threads, at.rows * layout.blocks(), [&](int64_t p) {
      kernels.moments(layout.plane(), block, from[p], means + p * block, distances + p * block);
    });
    state.status = PlaneMoments{layout, at.rows, means, distances}.Merge(
        state, program->ptr<float>(mean), program->ptr<float>(variance));
    if (state.status.ok()) {
      NormalizeAll(at, *program, state, kernels, program->ptr<float>(mean),
                   program->ptr<float>(variance), program->ptr_or_null<uint8_t>(mask));
    }
  };
  lowering.EmitKernels(
      node, run,
      {at.x.buffer, at.y.buffer, mean, variance, moments, at.affine, at.residual.buffer, mask});
}

// The places of the operands of a gradient of batch_norm.
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
    LowerNormOfStatistics(lowering, node);
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
