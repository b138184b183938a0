// Lowers group_norm to our own kernels, row by row. All work on a row is done while the row is in a
// near cache.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/norm_planes.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// The groups of group_norm among the lanes of a row. Channel c belongs to group c / channels.
struct Groups {
  Layout layout;
  int64_t groups;
  int64_t channels;  // of a group

  Groups(const Layout& of, int64_t number)
      : layout(of), groups(number), channels(of.channels / number) {}
  int64_t lanes() const { return layout.blocks() * layout.block; }
  double elements() const { return static_cast<double>(channels * layout.plane()); }

  // Merges means and squared distances of a row's channels. Lanes that only fill the last block
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

// One run of group_norm's gradient, with all pointers resolved. Sums over planes are kept by row
// and then added in the order of the rows, whatever the number of threads.
template <class T>
struct GroupNormGradient {
  const Kernels<T>& kernels;
  Groups groups;
  const T *dy, *x;
  const float* weight;
  const float *mean, *inverse;  // [rows, groups]
  T* dx;                        // null if it is not needed
  float* sums;                  // [rows][2][lanes]: the sums of dy and of dy (x - mean) inverse
  float* tables;                // [threads][3][lanes]

  void RunRow(int64_t n, int64_t thread) const {
    float* const table = tables + thread * 3 * groups.lanes();
    SumPlanes(n, table);
    if (dx != nullptr) {
      FillTables(n, table);
      WriteInputGradient(n, table);
    }
  }

  void SumRows(int64_t rows, bool adds, float* dweight, float* dbias) const {
    for (int64_t i = 0; i < groups.layout.channels; ++i) {
      double of_weight = adds ? dweight[i] : 0;
      double of_bias = adds ? dbias[i] : 0;
      for (int64_t n = 0; n < rows; ++n) {
        of_bias += sum(n)[i];
        of_weight += sum_x(n)[i];
      }
      dweight[i] = static_cast<float>(of_weight);
      dbias[i] = static_cast<float>(of_bias);
    }
  }

 private:
  float* sum(int64_t n) const { return sums + n * 2 * groups.lanes(); }
  float* sum_x(int64_t n) const { return sum(n) + groups.lanes(); }
  int64_t plane() const { return groups.layout.plane() * groups.layout.block; }

  void SumPlanes(int64_t n, float* means) const {
    const Layout& layout = groups.layout;
    const int64_t row = n * layout.elements();
    for (int64_t i = 0; i < groups.lanes(); ++i) {
      means[i] = i < layout.channels ? mean[n * groups.groups + i / groups.channels] : 0;
    }
    for (int64_t p = 0; p < layout.blocks(); ++p) {
      const int64_t lane = p * layout.block;
      kernels.norm_gradient_sums(layout.plane(), layout.block, dy + row + p * plane(),
                                 x + row + p * plane(), nullptr, nullptr, means + lane,
                                 sum(n) + lane, sum_x(n) + lane);
    }
    for (int64_t i = 0; i < layout.channels; ++i) {
      sum_x(n)[i] *= inverse[n * groups.groups + i / groups.channels];
    }
  }

  // Computes the factors with which dx = inverse (weight dy - d - h dh) is dy a + x b + c. Here
  // h = (x - mean) inverse, and d and dh are the means over a group of weight dy and of
  // weight dy h.
  void FillTables(int64_t n, float* a) const {
    float* const b = a + groups.lanes();
    float* const c = b + groups.lanes();
    std::fill(a, a + 3 * groups.lanes(), 0.0f);
    for (int64_t group = 0; group < groups.groups; ++group) {
      double of_d = 0;
      double of_dh = 0;
      const int64_t begin = group * groups.channels;
      const int64_t end = begin + groups.channels;
      for (int64_t i = begin; i < end; ++i) {
        of_d += static_cast<double>(weight[i]) * sum(n)[i];
        of_dh += static_cast<double>(weight[i]) * sum_x(n)[i];
      }
      of_d /= groups.elements();
      of_dh /= groups.elements();
      const double scale = inverse[n * groups.groups + group];
      const float mean_of_group = mean[n * groups.groups + group];
      for (int64_t i = begin; i < end; ++i) {
        a[i] = static_cast<float>(scale * weight[i]);
        b[i] = static_cast<float>(-scale * scale * of_dh);
        c[i] = static_cast<float>(scale * (scale * of_dh * mean_of_group - of_d));
      }
    }
  }

  void WriteInputGradient(int64_t n, const float* a) const {
    const Layout& layout = groups.layout;
    const int64_t row = n * layout.elements();
    const float* const b = a + groups.lanes();
    const float* const c = b + groups.lanes();
    for (int64_t p = 0; p < layout.blocks(); ++p) {
      const int64_t lane = p * layout.block;
      kernels.norm_gradient(layout.plane(), layout.block, dy + row + p * plane(),
                            x + row + p * plane(), nullptr, nullptr, a + lane, b + lane, c + lane,
                            nullptr, dx + row + p * plane());
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
      // Scale and shift replace the moments.
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
  const BufferId sums = lowering.AddScratch(TableBytes(lowering.rows() * groups.lanes(), 2));
  const BufferId tables = lowering.AddScratch(TableBytes(lowering.threads() * groups.lanes(), 3));
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const GroupNormGradient<T> gradient = {kernels,
                                           groups,
                                           program->ptr<T>(dy),
                                           program->ptr<T>(x),
                                           weight,
                                           program->ptr<float>(mean),
                                           program->ptr<float>(inverse),
                                           program->ptr_or_null<T>(dx),
                                           program->ptr<float>(sums),
                                           program->ptr<float>(tables)};
    ParallelShares(threads, rows, [&](int64_t n, int64_t thread) { gradient.RunRow(n, thread); });
    gradient.SumRows(rows, state.accumulate, dweight, dbias);
  };
  lowering.EmitKernels(node, run, {dy, x, mean, inverse, sums, tables, dx});
}

}  // namespace trainyard::engine::cpu
