// batch_norm by our own kernels, plane by plane: any layout, no workspace. The relu's mask is
// computed again from the input, or, behind the sum of a residual connection, kept in bits. Sums
// over planes are taken in double and in one order, whatever the threads.
#include <cmath>

#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Per-lane tables of padded channels: `lanes` floats each.
int64_t TableBytes(int64_t lanes, int64_t tables) {
  return lanes * tables * int64_t{sizeof(float)};
}

// y = x scale + shift of one channel.
struct Affine {
  float scale, shift;
};

Affine ForwardAffine(float weight, float bias, float mean, float variance, double eps) {
  const double scale = weight / std::sqrt(variance + eps);
  return {static_cast<float>(scale), static_cast<float>(bias - mean * scale)};
}

// y = x scale + shift (+ residual), rectified where `relu`; all pointers resolved.
template <class T>
struct Normalization {
  const Kernels<T>& kernels;
  Layout layout;
  int64_t rows;
  int threads;
  bool relu;
  Planes<T> x;
  const float *scale, *shift;  // by lane
  Planes<T> residual;          // null: none
  Planes<T> y;
  uint8_t* mask;  // null: not wanted

  void Run() const {
    const int64_t plane = layout.plane();
    const int64_t block = layout.block;
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      const int64_t lane = p % layout.blocks() * block;
      if (residual.first == nullptr) {
        kernels.normalize(plane, block, x[p], scale + lane, shift + lane, relu, y[p]);
      } else {
        kernels.normalize_residual(plane, block, x[p], scale + lane, shift + lane, residual[p],
                                   y[p],
                                   mask == nullptr ? nullptr : mask + p * MaskBytes(plane, block));
      }
    });
  }
};

// One run of batch_norm_gradient, all pointers resolved.
template <class T>
struct NormGradient {
  const Kernels<T>& kernels;
  Layout layout;
  int64_t rows;
  int threads;
  double eps;
  const float *weight, *bias;  // bias null: not rectified
  const float *mean, *variance;
  Planes<T> dy, x;
  Planes<T> second;     // added to dy; null: none
  const uint8_t* mask;  // null: none
  Planes<T> g;          // of a mask: the gradient behind it
  Planes<T> addend;     // of dx; null: none
  Planes<T> dx;         // null: not wanted
  float* sums;
  float* tables;
  float *weight_sums, *bias_sums;
  bool accumulate;

  int64_t lanes() const { return layout.blocks() * layout.block; }
  // Two for each plane, by lane.
  float* plane_sums() const { return sums; }
  float* plane_sums_x() const { return sums + rows * lanes(); }
  // By lane: mean, scale and shift of the forward op; then a, b and c of the kernel.
  float* table(int64_t i) const { return tables + i * lanes(); }
  const float* mask_scale(int64_t lane) const {
    return bias == nullptr ? nullptr : table(1) + lane;
  }

  void FillForwardTables() const {
    for (int64_t lane = 0; lane < lanes(); ++lane) {
      if (lane >= layout.channels) {
        table(0)[lane] = table(1)[lane] = table(2)[lane] = 0;
        continue;
      }
      // The forward op's, to the last bit.
      const Affine affine = ForwardAffine(weight[lane], bias == nullptr ? 0.0f : bias[lane],
                                          mean[lane], variance[lane], eps);
      table(0)[lane] = mean[lane];
      table(1)[lane] = affine.scale;
      table(2)[lane] = affine.shift;
    }
  }

  void SumPlanes() const {
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      const int64_t lane = p % layout.blocks() * layout.block;
      float* sum = plane_sums() + p * layout.block;
      float* sum_x = plane_sums_x() + p * layout.block;
      if (mask != nullptr) {
        kernels.residual_gradient_sums(layout.plane(), layout.block, dy[p], second[p],
                                       mask + p * MaskBytes(layout.plane(), layout.block), x[p],
                                       table(0) + lane, g[p], sum, sum_x);
      } else {
        kernels.norm_gradient_sums(layout.plane(), layout.block, dy[p], x[p], mask_scale(lane),
                                   table(2) + lane, table(0) + lane, sum, sum_x);
      }
    });
  }

  // Parameter gradients, and dx = weight inverse (g - sum / n - (x - mean) inverse^2 sum_x / n) as
  // g a + x b + c.
  void FinishLanes() const {
    const double count = static_cast<double>(rows * layout.plane());
    for (int64_t lane = 0; lane < lanes(); ++lane) {
      if (lane >= layout.channels) {
        table(3)[lane] = table(4)[lane] = table(5)[lane] = 0;
        continue;
      }
      double sum = 0;
      double sum_x = 0;
      for (int64_t n = 0; n < rows; ++n) {
        sum += plane_sums()[n * lanes() + lane];
        sum_x += plane_sums_x()[n * lanes() + lane];
      }
      const double inverse = 1 / std::sqrt(variance[lane] + eps);
      const float dweight = static_cast<float>(sum_x * inverse);
      const float dbias = static_cast<float>(sum);
      weight_sums[lane] = accumulate ? weight_sums[lane] + dweight : dweight;
      bias_sums[lane] = accumulate ? bias_sums[lane] + dbias : dbias;
      const double slope = weight[lane] * inverse;
      const double curve = -slope * inverse * inverse * sum_x / count;
      table(3)[lane] = static_cast<float>(slope);
      table(4)[lane] = static_cast<float>(curve);
      table(5)[lane] = static_cast<float>(-slope * sum / count - curve * mean[lane]);
    }
  }

  void WriteInputGradient() const {
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      const int64_t lane = p % layout.blocks() * layout.block;
      kernels.norm_gradient(layout.plane(), layout.block, mask == nullptr ? dy[p] : g[p], x[p],
                            mask_scale(lane), table(2) + lane, table(3) + lane, table(4) + lane,
                            table(5) + lane, addend[p], dx[p]);
    });
  }
};

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
  // Mean and squared distances of each plane; then scale and shift of each lane.
  const BufferId moments = AddScratch(TableBytes(rows_ * lanes, 2));
  const BufferId affine = AddScratch(TableBytes(lanes, 2));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &program_;
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t block = x_layout.block;
    const int64_t plane = x_layout.plane();
    const int64_t planes = rows * x_layout.blocks();
    const Planes<T> from = At<T>(*program, x, x_layout);
    float* means = program->ptr<float>(moments);
    float* distances = means + rows * lanes;
    ParallelFor(threads, planes, [&](int64_t p) {
      kernels.moments(plane, block, from[p], means + p * block, distances + p * block);
    });
    float* scale = program->ptr<float>(affine);
    float* shift = scale + lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if (lane >= x_layout.channels) {
        scale[lane] = shift[lane] = 0;
        continue;
      }
      // Chan, Golub & LeVeque 1983, equation 2.1: all planes are of one size.
      double sum = 0;
      double squares = 0;
      for (int64_t n = 0; n < rows; ++n) {
        sum += means[n * lanes + lane];
      }
      const double m = sum / static_cast<double>(rows);
      for (int64_t n = 0; n < rows; ++n) {
        const double d = means[n * lanes + lane] - m;
        squares += distances[n * lanes + lane] + static_cast<double>(plane) * d * d;
      }
      const double v = squares / static_cast<double>(rows * plane);
      program->ptr<float>(mean)[lane] = static_cast<float>(m);
      program->ptr<float>(variance)[lane] = static_cast<float>(v);
      const Affine applied = ForwardAffine(weight[lane], bias[lane], static_cast<float>(m),
                                           static_cast<float>(v), eps);
      scale[lane] = applied.scale;
      shift[lane] = applied.shift;
    }
    const Normalization<T> normalization = {kernels,
                                            x_layout,
                                            rows,
                                            threads,
                                            relu,
                                            from,
                                            scale,
                                            shift,
                                            At<T>(*program, residual, x_layout),
                                            At<T>(*program, y, x_layout),
                                            program->ptr_or_null<uint8_t>(mask)};
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
  const BufferId affine = AddScratch(TableBytes(lanes, 2));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = node.norm().eps;
  const bool relu = node.relu;
  Program* program = &program_;
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    float* scale = program->ptr<float>(affine);
    float* shift = scale + lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const Affine applied =
          lane >= x_layout.channels
              ? Affine{0, 0}
              : ForwardAffine(weight[lane], bias[lane], program->ptr<float>(mean)[lane],
                              program->ptr<float>(variance)[lane], eps);
      scale[lane] = applied.scale;
      shift[lane] = applied.shift;
    }
    const Normalization<T> normalization = {kernels,
                                            x_layout,
                                            rows,
                                            threads,
                                            relu,
                                            At<T>(*program, x, x_layout),
                                            scale,
                                            shift,
                                            At<T>(*program, residual, x_layout),
                                            At<T>(*program, y, x_layout),
                                            nullptr};
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
  const BufferId tables = AddScratch(TableBytes(lanes, 6));
  const int64_t rows = rows_;
  const int threads = threads_;
  const double eps = norm.eps;
  Program* program = &program_;
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const NormGradient<T> gradient = {kernels,
                                      x_layout,
                                      rows,
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
                                      bias_sums,
                                      state.accumulate};
    gradient.FillForwardTables();
    gradient.SumPlanes();
    gradient.FinishLanes();
    if (dx.buffer != kNoBuffer) {
      gradient.WriteInputGradient();
    }
  };
  EmitKernels(node, run,
              {dy.buffer, x.buffer, mean, variance, sums, tables, mask, second.buffer,
               addend.buffer, g.buffer, dx.buffer});
}

}  // namespace trainyard::engine::cpu
