// batch_norm by our own kernels, plane by plane: any layout, no workspace. The relu's mask is
// computed again from the input, or, behind the sum of a residual connection, kept in bits. Sums
// over planes are taken in double and in one order, whatever the threads.
#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/norm_planes.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Per-lane tables of padded channels: `lanes` floats each.
int64_t TableBytes(int64_t lanes, int64_t tables) {
  return lanes * tables * int64_t{sizeof(float)};
}

}  // namespace

Compiler::Place Compiler::FusedInput(const Node& node, int place, const Layout& wanted) {
  return place > 0 ? PlaceOf(node.inputs[static_cast<size_t>(place)], wanted) : Place{};
}

void Compiler::LowerNorm(const Node& node) {
  const Layout x_layout = Stored(layout(node.inputs[0]));
  SetLayout(node.outputs[0], x_layout);
  const Place x = PlaceOf(node.inputs[0], x_layout);
  const Place residual = FusedInput(node, node.norm().residual, x_layout);
  const Place y = OutputPlace(node);
  const BufferId mean = BufferOf(node.outputs[1]);
  const BufferId variance = BufferOf(node.outputs[2]);
  BufferId mask = kNoBuffer;
  if (residual.buffer != kNoBuffer) {
    SetLayout(node.outputs[3], x_layout);
    mask = BufferOf(node.outputs[3]);
  }
  const float* weight = Parameter(node.inputs[1]);
  const float* bias = Parameter(node.inputs[2]);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  // Mean and squared distances of each plane; then scale and shift of each group's lanes.
  const BufferId moments = AddScratch(TableBytes(rows_ * lanes, 2));
  const BufferId affine = AddScratch(TableBytes(step_.max_groups * lanes, 2));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &program_;
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
  EmitKernels(node, run,
              {x.buffer, y.buffer, mean, variance, moments, affine, residual.buffer, mask});
}

BufferId Compiler::StatisticBuffer(ValueId id) {
  return value(id).role == Role::kBuffer ? program_.AddFixedBuffer(RunningStatistic(id))
                                         : BufferOf(id);
}

void Compiler::LowerNormEvaluation(const Node& node) {
  const Layout x_layout = Stored(layout(node.inputs[0]));
  SetLayout(node.outputs[0], x_layout);
  const Place x = PlaceOf(node.inputs[0], x_layout);
  const Place residual = FusedInput(node, node.norm().residual, x_layout);
  const Place y = OutputPlace(node);
  const float* weight = Parameter(node.inputs[1]);
  const float* bias = Parameter(node.inputs[2]);
  // Running, or those of the batch.
  const BufferId mean = StatisticBuffer(node.inputs[3]);
  const BufferId variance = StatisticBuffer(node.inputs[4]);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  const BufferId affine = AddScratch(TableBytes(step_.max_groups * lanes, 2));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &program_;
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
  EmitKernels(node, run, {x.buffer, y.buffer, affine, residual.buffer, mean, variance});
}

void Compiler::LowerNormGradient(const Node& node) {
  const Layout x_layout = Stored(layout(node.inputs[1]));
  const Place dy = PlaceOf(node.inputs[0], x_layout);
  const Place x = PlaceOf(node.inputs[1], x_layout);
  const float* weight = Parameter(node.inputs[2]);
  const BufferId mean = BufferOf(node.inputs[3]);
  const BufferId variance = BufferOf(node.inputs[4]);
  const NormAttributes& norm = node.norm();
  const float* bias =
      norm.bias > 0 ? Parameter(node.inputs[static_cast<size_t>(norm.bias)]) : nullptr;
  const BufferId mask =
      norm.mask > 0 ? BufferOf(node.inputs[static_cast<size_t>(norm.mask)]) : kNoBuffer;
  const Place second = FusedInput(node, norm.second_gradient, x_layout);
  const Place addend = FusedInput(node, norm.addend, x_layout);
  Place g;
  if (mask != kNoBuffer) {
    SetLayout(node.outputs[3], x_layout);
    g = OutputPlace(node, 3);
  }
  Place dx;
  if (node.outputs[0] != kNoValue) {
    SetLayout(node.outputs[0], x_layout);
    dx = OutputPlace(node);
  }
  const ReductionEntry weight_entry = GradientEntry(node.outputs[1]);
  const ReductionEntry bias_entry = GradientEntry(node.outputs[2]);
  float* weight_sums = state_.reduction + weight_entry.offset;
  float* bias_sums = state_.reduction + bias_entry.offset;
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  const BufferId sums = AddScratch(TableBytes(rows_ * lanes, 2));
  const BufferId tables = AddScratch(TableBytes(step_.max_groups * lanes, 6));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = norm.eps;
  Program* program = &program_;
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const NormGradient<T> gradient = {kernels,
                                      x_layout,
                                      rows,
                                      state,
                                      threads,
                                      eps,
                                      weight,
                                      bias,
                                      program->ptr<float>(mean),
                                      program->ptr<float>(variance),
                                      At<T>(*program, dy, x_layout),
                                      At<T>(*program, x, x_layout),
                                      At<T>(*program, second, x_layout),
                                      program->ptr_or_null<uint8_t>(mask),
                                      At<T>(*program, g, x_layout),
                                      At<T>(*program, addend, x_layout),
                                      At<T>(*program, dx, x_layout),
                                      program->ptr<float>(sums),
                                      program->ptr<float>(tables),
                                      weight_sums,
                                      bias_sums};
    gradient.FillForwardTables();
    gradient.SumPlanes();
    state.status = gradient.Finish();
    if (state.status.ok() && dx.buffer != kNoBuffer) {
      gradient.WriteInputGradient();
    }
  };
  EmitKernels(node, run,
              {dy.buffer, x.buffer, mean, variance, sums, tables, mask, second.buffer,
               addend.buffer, g.buffer, dx.buffer});
}

}  // namespace trainyard::engine::cpu
