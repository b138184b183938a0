// batch_norm by our own kernels, plane by plane: any layout, no workspace. The relu's mask is
// computed again from the input, or, behind the sum of a residual connection, kept in bits. Sums
// over planes are taken in double and in one order, whatever the threads.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/norm_planes.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Per-lane tables of padded channels: `lanes` floats each.
int64_t TableBytes(int64_t lanes, int64_t tables) {
  return lanes * tables * int64_t{sizeof(float)};
}

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
  const Operand dy = lowering.OperandOf(node.inputs[0], x_layout);
  const Operand x = lowering.OperandOf(node.inputs[1], x_layout);
  const float* weight = lowering.Parameter(node.inputs[2]);
  const BufferId mean = lowering.BufferOf(node.inputs[3]);
  const BufferId variance = lowering.BufferOf(node.inputs[4]);
  const NormAttributes& norm = node.norm();
  const float* bias =
      norm.bias > 0 ? lowering.Parameter(node.inputs[static_cast<size_t>(norm.bias)]) : nullptr;
  const BufferId mask =
      norm.mask > 0 ? lowering.BufferOf(node.inputs[static_cast<size_t>(norm.mask)]) : kNoBuffer;
  const Operand second = FusedInput(lowering, node, norm.second_gradient, x_layout);
  const Operand addend = FusedInput(lowering, node, norm.addend, x_layout);
  Operand g;
  if (mask != kNoBuffer) {
    lowering.SetLayout(node.outputs[3], x_layout);
    g = lowering.OutputOperand(node, 3);
  }
  Operand dx;
  if (node.outputs[0] != kNoValue) {
    lowering.SetLayout(node.outputs[0], x_layout);
    dx = lowering.OutputOperand(node);
  }
  float* weight_sums = lowering.GradientSums(node.outputs[1]);
  float* bias_sums = lowering.GradientSums(node.outputs[2]);
  const int64_t lanes = x_layout.blocks() * x_layout.block;
  const BufferId sums = lowering.AddScratch(TableBytes(lowering.rows() * lanes, 2));
  const BufferId tables = lowering.AddScratch(TableBytes(lowering.step().max_groups * lanes, 6));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const double eps = norm.eps;
  Program* program = &lowering.program();
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
  lowering.EmitKernels(node, run,
                       {dy.buffer, x.buffer, mean, variance, sums, tables, mask, second.buffer,
                        addend.buffer, g.buffer, dx.buffer});
}

namespace {

// The groups of group_norm among the lanes of a row: channel c belongs to group c / channels.
struct Groups {
  Layout layout;
  int64_t groups;
  int64_t channels;  // of a group

  Groups(const Layout& of, int64_t number)
      : layout(of), groups(number), channels(of.channels / number) {}
  int64_t lanes() const { return layout.blocks() * layout.block; }
  double elements() const { return static_cast<double>(channels * layout.plane()); }

  // Merges means and squared distances of a row's channels; lanes that only fill the last block
  // count for nothing.
  void Merge(const float* means, const float* distances, double eps, float* mean,
             float* inverse) const {
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0;
      for (int64_t c = g * channels; c < (g + 1) * channels; ++c) sum += means[c];
      const double average = sum / static_cast<double>(channels);
      double squares = 0;
      for (int64_t c = g * channels; c < (g + 1) * channels; ++c) {
        const double apart = means[c] - average;
        squares += distances[c] + static_cast<double>(layout.plane()) * apart * apart;
      }
      mean[g] = static_cast<float>(average);
      inverse[g] = static_cast<float>(1 / std::sqrt(squares / elements() + eps));
    }
  }
};

}  // namespace

void LowerGroupNorm(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[0]));
  const Groups groups(home, node.layer<layers::GroupNorm>().groups);
  lowering.SetLayout(node.outputs[0], home);
  for (const size_t statistic : {1, 2}) {
    lowering.SetLayout(node.outputs[statistic], PlainLayout({groups.groups}));
  }
  const BufferId x = lowering.In(node.inputs[0], home);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const BufferId mean = lowering.BufferOf(node.outputs[1]);
  const BufferId inverse = lowering.BufferOf(node.outputs[2]);
  const float* weight = lowering.Parameter(node.inputs[1]);
  const float* bias = lowering.Parameter(node.inputs[2]);
  const int64_t lanes = groups.lanes();
  const BufferId tables = lowering.AddScratch(TableBytes(lowering.threads() * lanes, 2));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const double eps = node.layer<layers::GroupNorm>().eps;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t plane = home.plane() * home.block;
    ParallelShares(threads, rows, [&](int64_t n, int64_t thread) {
      const T* from = program->ptr<T>(x) + n * home.elements();
      T* to = program->ptr<T>(y) + n * home.elements();
      float* first = program->ptr<float>(tables) + thread * 2 * lanes;
      float* second = first + lanes;
      float* means = program->ptr<float>(mean) + n * groups.groups;
      float* inverses = program->ptr<float>(inverse) + n * groups.groups;
      for (int64_t p = 0; p < home.blocks(); ++p) {
        kernels.moments(home.plane(), home.block, from + p * plane, first + p * home.block,
                        second + p * home.block);
      }
      groups.Merge(first, second, eps, means, inverses);
      // Scale and shift take the place of the moments.
      for (int64_t c = 0; c < lanes; ++c) {
        const int64_t g = c / groups.channels;
        first[c] = c < home.channels ? weight[c] * inverses[g] : 0;
        second[c] = c < home.channels ? bias[c] - means[g] * first[c] : 0;
      }
      for (int64_t p = 0; p < home.blocks(); ++p) {
        kernels.normalize(home.plane(), home.block, from + p * plane, first + p * home.block,
                          second + p * home.block, /*relu=*/false, to + p * plane);
      }
    });
  };
  lowering.EmitKernels(node, run, {x, y, mean, inverse, tables});
}

// Sums over planes are kept by row and then added in the order of the rows, whatever the threads.
void LowerGroupNormGradient(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[1]));
  const Groups groups(home, node.layer<layers::GroupNorm>().groups);
  const BufferId dy = lowering.In(node.inputs[0], home);
  const BufferId x = lowering.In(node.inputs[1], home);
  const float* weight = lowering.Parameter(node.inputs[2]);
  const BufferId mean = lowering.BufferOf(node.inputs[3]);
  const BufferId inverse = lowering.BufferOf(node.inputs[4]);
  BufferId dx = kNoBuffer;
  if (node.outputs[0] != kNoValue) {
    lowering.SetLayout(node.outputs[0], home);
    dx = lowering.OutputBuffer(node);
  }
  float* dweight = lowering.GradientSums(node.outputs[1]);
  float* dbias = lowering.GradientSums(node.outputs[2]);
  const int64_t lanes = groups.lanes();
  const BufferId sums = lowering.AddScratch(TableBytes(lowering.rows() * lanes, 2));
  const BufferId tables = lowering.AddScratch(TableBytes(lowering.threads() * lanes, 3));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const int64_t plane = home.plane() * home.block;
    ParallelShares(threads, rows, [&](int64_t n, int64_t thread) {
      const T* g = program->ptr<T>(dy) + n * home.elements();
      const T* from = program->ptr<T>(x) + n * home.elements();
      const float* means = program->ptr<float>(mean) + n * groups.groups;
      const float* inverses = program->ptr<float>(inverse) + n * groups.groups;
      float* sum = program->ptr<float>(sums) + n * 2 * lanes;
      float* sum_x = sum + lanes;
      float* a = program->ptr<float>(tables) + thread * 3 * lanes;
      float* b = a + lanes;
      float* c = b + lanes;
      for (int64_t i = 0; i < lanes; ++i) {
        a[i] = i < home.channels ? means[i / groups.channels] : 0;
      }
      for (int64_t p = 0; p < home.blocks(); ++p) {
        const int64_t lane = p * home.block;
        kernels.norm_gradient_sums(home.plane(), home.block, g + p * plane, from + p * plane,
                                   nullptr, nullptr, a + lane, sum + lane, sum_x + lane);
      }
      // From here on sum_x is that of dy (x - mean) * inverse: the row's part of dweight.
      for (int64_t i = 0; i < home.channels; ++i) sum_x[i] *= inverses[i / groups.channels];
      if (dx == kNoBuffer) {
        return;
      }
      std::fill(a, a + 3 * lanes, 0.0f);
      for (int64_t group = 0; group < groups.groups; ++group) {
        double of_d = 0;
        double of_dh = 0;
        const int64_t begin = group * groups.channels;
        const int64_t end = begin + groups.channels;
        for (int64_t i = begin; i < end; ++i) {
          of_d += static_cast<double>(weight[i]) * sum[i];
          of_dh += static_cast<double>(weight[i]) * sum_x[i];
        }
        of_d /= groups.elements();
        of_dh /= groups.elements();
        const double scale = inverses[group];
        for (int64_t i = begin; i < end; ++i) {
          a[i] = static_cast<float>(scale * weight[i]);
          b[i] = static_cast<float>(-scale * scale * of_dh);
          c[i] = static_cast<float>(scale * (scale * of_dh * means[group] - of_d));
        }
      }
      T* to = program->ptr<T>(dx) + n * home.elements();
      for (int64_t p = 0; p < home.blocks(); ++p) {
        const int64_t lane = p * home.block;
        kernels.norm_gradient(home.plane(), home.block, g + p * plane, from + p * plane, nullptr,
                              nullptr, a + lane, b + lane, c + lane, nullptr, to + p * plane);
      }
    });
    for (int64_t i = 0; i < home.channels; ++i) {
      double of_weight = state.accumulate ? dweight[i] : 0;
      double of_bias = state.accumulate ? dbias[i] : 0;
      for (int64_t n = 0; n < rows; ++n) {
        of_bias += program->ptr<float>(sums)[n * 2 * lanes + i];
        of_weight += program->ptr<float>(sums)[(n * 2 + 1) * lanes + i];
      }
      dweight[i] = static_cast<float>(of_weight);
      dbias[i] = static_cast<float>(of_bias);
    }
  };
  lowering.EmitKernels(node, run, {dy, x, mean, inverse, sums, tables, dx});
}

}  // namespace trainyard::engine::cpu
