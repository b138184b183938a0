// Implements what batch_norm and its gradient do with the planes of a batch, group of rows by group
// (Batch::groups) or over the rows of all ranks. The calls of lower_norm.cc run it.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cpu/kernels.h"
#include "worker/engine/backend/cpu/layout.h"
#include "worker/engine/backend/cpu/parallel.h"
#include "worker/engine/backend/cpu/program.h"

namespace trainyard::engine::cpu {

// Returns the bytes of tables that have a float for each lane of padded channels.
inline int64_t TableBytes(int64_t lanes, int64_t tables) {
  return lanes * tables * int64_t{sizeof(float)};
}

// The factors of y = x scale + shift of one channel.
struct Affine {
  float scale, shift;
};

inline Affine ForwardAffine(float weight, float bias, float mean, float variance, double eps) {
  const double scale = weight / std::sqrt(variance + eps);
  return {static_cast<float>(scale), static_cast<float>(bias - mean * scale)};
}

// Computes y = x scale + shift (+ residual), rectified if `relu`. All pointers are resolved.
template <class T>
struct Normalization {
  const Kernels<T>& kernels;
  Layout layout;
  int64_t rows;
  const RowGroups& groups;
  int threads;
  bool relu;
  Planes<T> x;
  float* affine;       // by group: scale, then shift, by lane
  Planes<T> residual;  // null if there is none
  Planes<T> y;
  uint8_t* mask;  // null if it is not needed

  int64_t lanes() const { return layout.blocks() * layout.block; }

  // Fills the table from the groups' statistics, [groups, channels].
  void FillAffine(const float* weight, const float* bias, const float* mean, const float* variance,
                  double eps) const {
    for (int64_t group = 0; group < groups.count(); ++group) {
      const int64_t first = group * layout.channels;
      for (int64_t lane = 0; lane < lanes(); ++lane) {
        const Affine applied = lane >= layout.channels
                                   ? Affine{0, 0}
                                   : ForwardAffine(weight[lane], bias[lane], mean[first + lane],
                                                   variance[first + lane], eps);
        affine[2 * group * lanes() + lane] = applied.scale;
        affine[(2 * group + 1) * lanes() + lane] = applied.shift;
      }
    }
  }

  void Run() const {
    const int64_t plane = layout.plane();
    const int64_t block = layout.block;
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      const int64_t group = groups.of_row(p / layout.blocks());
      const float* scale = affine + 2 * group * lanes() + p % layout.blocks() * block;
      const float* shift = scale + lanes();
      if (residual.first == nullptr) {
        kernels.normalize(plane, block, x[p], scale, shift, relu, y[p]);
      } else {
        kernels.normalize_residual(plane, block, x[p], scale, shift, residual[p], y[p],
                                   mask == nullptr ? nullptr : mask + p * MaskBytes(plane, block));
      }
    });
  }
};

// Means and squared distances of planes, by lane.
struct PlaneMoments {
  Layout layout;
  int64_t rows;
  const float *means, *distances;

  // Merges the moments of each group, or of all ranks, into [groups, channels].
  absl::Status Merge(const RunState& state, float* mean, float* variance) const {
    for (int64_t group = 0; group < state.groups->count(); ++group) {
      MergeGroup(state.groups->begin(group), state.groups->rows(group, rows),
                 mean + group * layout.channels, variance + group * layout.channels);
    }
    if (state.ranks == nullptr) {
      return absl::OkStatus();
    }
    const absl::Span<double> values = state.ranks->Values(layout.channels);
    double* const variances = std::copy_n(mean, layout.channels, values.data());
    std::copy_n(variance, layout.channels, variances);
    TY_RETURN_IF_ERROR(state.ranks->Merge(rows, layout.plane()));
    for (int64_t c = 0; c < layout.channels; ++c) {
      mean[c] = static_cast<float>(values[static_cast<size_t>(c)]);
      variance[c] = static_cast<float>(variances[c]);
    }
    return absl::OkStatus();
  }

 private:
  // The formula is Chan, Golub & LeVeque 1983, equation 2.1. All planes have the same size.
  void MergeGroup(int64_t begin, int64_t count, float* mean, float* variance) const {
    const int64_t lanes = layout.blocks() * layout.block;
    for (int64_t lane = 0; lane < layout.channels; ++lane) {
      double sum = 0;
      double squares = 0;
      for (int64_t n = begin; n < begin + count; ++n) {
        sum += means[n * lanes + lane];
      }
      const double m = sum / static_cast<double>(count);
      for (int64_t n = begin; n < begin + count; ++n) {
        const double d = means[n * lanes + lane] - m;
        squares += distances[n * lanes + lane] + static_cast<double>(layout.plane()) * d * d;
      }
      mean[lane] = static_cast<float>(m);
      variance[lane] = static_cast<float>(squares / static_cast<double>(count * layout.plane()));
    }
  }
};

// One run of batch_norm_gradient, with all pointers resolved.
template <class T>
struct NormGradient {
  const Kernels<T>& kernels;
  Layout layout;
  int64_t rows;
  const RunState& state;
  int threads;
  double eps;
  const float *weight, *bias;    // if bias is null, the result was not rectified
  const float *mean, *variance;  // [groups, channels]
  Planes<T> dy, x;
  Planes<T> second;     // added to dy; null if there is none
  const uint8_t* mask;  // null if there is none
  Planes<T> g;          // with a mask, the gradient behind it
  Planes<T> addend;     // added to dx; null if there is none
  Planes<T> dx;         // null if it is not needed
  float* sums;
  float* tables;
  float *weight_sums, *bias_sums;

  int64_t lanes() const { return layout.blocks() * layout.block; }
  // Returns two sums for each plane, by lane.
  float* plane_sums() const { return sums; }
  float* plane_sums_x() const { return sums + rows * lanes(); }
  // Returns the tables of a group, by lane: mean, scale and shift of the forward op, then a, b and
  // c of the kernel.
  float* table(int64_t group, int64_t i) const { return tables + (6 * group + i) * lanes(); }
  // Returns the table of the group and the lanes of a plane.
  const float* table_of(int64_t p, int64_t i) const {
    return table(state.groups->of_row(p / layout.blocks()), i) + p % layout.blocks() * layout.block;
  }
  const float* mask_scale(int64_t p) const { return bias == nullptr ? nullptr : table_of(p, 1); }

  void FillForwardTables() const {
    for (int64_t group = 0; group < state.groups->count(); ++group) {
      const int64_t first = group * layout.channels;
      for (int64_t lane = 0; lane < lanes(); ++lane) {
        const bool is_padding = lane >= layout.channels;
        // This equals the forward op's, to the last bit.
        const Affine affine = is_padding
                                  ? Affine{0, 0}
                                  : ForwardAffine(weight[lane], bias == nullptr ? 0.0f : bias[lane],
                                                  mean[first + lane], variance[first + lane], eps);
        table(group, 0)[lane] = is_padding ? 0.0f : mean[first + lane];
        table(group, 1)[lane] = affine.scale;
        table(group, 2)[lane] = affine.shift;
      }
    }
  }

  void SumPlanes() const {
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      float* sum = plane_sums() + p * layout.block;
      float* sum_x = plane_sums_x() + p * layout.block;
      if (mask != nullptr) {
        kernels.residual_gradient_sums(layout.plane(), layout.block, dy[p], second[p],
                                       mask + p * MaskBytes(layout.plane(), layout.block), x[p],
                                       table_of(p, 0), g[p], sum, sum_x);
      } else {
        kernels.norm_gradient_sums(layout.plane(), layout.block, dy[p], x[p], mask_scale(p),
                                   table_of(p, 2), table_of(p, 0), sum, sum_x);
      }
    });
  }

  struct LaneSums {
    double g = 0;
    double x = 0;  // the sum of g (x - mean)
  };

  // Computes the parameter gradients, and what the input's gradient needs.
  absl::Status Finish() const {
    for (int64_t group = 0; group < state.groups->count(); ++group) {
      const int64_t of_group = state.groups->rows(group, rows);
      for (int64_t lane = 0; lane < lanes(); ++lane) {
        if (lane >= layout.channels) {
          table(group, 3)[lane] = table(group, 4)[lane] = table(group, 5)[lane] = 0;
          continue;
        }
        const LaneSums of_lane = SumLane(state.groups->begin(group), of_group, lane);
        const bool adds = state.accumulate || group > 0;
        const float dweight = static_cast<float>(of_lane.x * Inverse(group, lane));
        const float dbias = static_cast<float>(of_lane.g);
        weight_sums[lane] = adds ? weight_sums[lane] + dweight : dweight;
        bias_sums[lane] = adds ? bias_sums[lane] + dbias : dbias;
        FillTables(group, lane, of_lane, of_group);
      }
    }
    return state.ranks == nullptr ? absl::OkStatus() : SumOverRanks();
  }

  void WriteInputGradient() const {
    ParallelFor(threads, rows * layout.blocks(), [&](int64_t p) {
      kernels.norm_gradient(layout.plane(), layout.block, mask == nullptr ? dy[p] : g[p], x[p],
                            mask_scale(p), table_of(p, 2), table_of(p, 3), table_of(p, 4),
                            table_of(p, 5), addend[p], dx[p]);
    });
  }

 private:
  double Inverse(int64_t group, int64_t lane) const {
    return 1 / std::sqrt(variance[group * layout.channels + lane] + eps);
  }

  LaneSums SumLane(int64_t begin, int64_t count, int64_t lane) const {
    LaneSums of_lane;
    for (int64_t n = begin; n < begin + count; ++n) {
      of_lane.g += plane_sums()[n * lanes() + lane];
      of_lane.x += plane_sums_x()[n * lanes() + lane];
    }
    return of_lane;
  }

  // Computes dx = weight inverse (g - sum / n - (x - mean) inverse^2 sum_x / n) as g a + x b + c.
  void FillTables(int64_t group, int64_t lane, const LaneSums& of_lane, int64_t of_rows) const {
    const double count = static_cast<double>(of_rows * layout.plane());
    const double inverse = Inverse(group, lane);
    const double slope = weight[lane] * inverse;
    const double curve = -slope * inverse * inverse * of_lane.x / count;
    table(group, 3)[lane] = static_cast<float>(slope);
    table(group, 4)[lane] = static_cast<float>(curve);
    table(group, 5)[lane] =
        static_cast<float>(-slope * of_lane.g / count - curve * table(group, 0)[lane]);
  }

  // Finishes with the sums over all ranks.
  absl::Status SumOverRanks() const {
    const absl::Span<double> values = state.ranks->Values(layout.channels);
    double* const values_x = values.data() + layout.channels;
    for (int64_t lane = 0; lane < layout.channels; ++lane) {
      const LaneSums of_lane = SumLane(0, rows, lane);
      values[static_cast<size_t>(lane)] = of_lane.g;
      values_x[lane] = of_lane.x;
    }
    TY_RETURN_IF_ERROR(state.ranks->Sum());
    for (int64_t lane = 0; lane < layout.channels; ++lane) {
      FillTables(0, lane, {values[static_cast<size_t>(lane)], values_x[lane]}, state.ranks->rows());
    }
    return absl::OkStatus();
  }
};

}  // namespace trainyard::engine::cpu
