// Computes batch_norm and its gradient, group by group (Batch::groups), or over the rows of all
// ranks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {
namespace {

// Calls visit(position) for every element of one channel in the rows of one group. shape: [C, H,
// W].
template <class T, class Visit>
void ForEachOfChannel(const Operands<T>& o, int64_t group, const Shape& shape, int64_t channel,
                      const Visit& visit) {
  const int64_t plane = shape[1] * shape[2];
  const int64_t begin = o.groups.begin(group);
  for (int64_t n = begin; n < begin + o.groups.rows(group, o.rows); ++n) {
    for (int64_t i = 0; i < plane; ++i) {
      visit((n * shape[0] + channel) * plane + i);
    }
  }
}

// Computes the mean and biased variance of each channel, for one group.
template <class T>
void Moments(const Operands<T>& o, int64_t group, T* means, T* variances) {
  const T* x = o.inputs[0];
  const Shape& shape = o.input_shape(0);
  const T count = static_cast<T>(o.groups.rows(group, o.rows) * shape[1] * shape[2]);
  for (int64_t c = 0; c < shape[0]; ++c) {
    T mean = 0;
    T variance = 0;
    ForEachOfChannel(o, group, shape, c, [&](int64_t i) { mean += x[i]; });
    mean /= count;
    ForEachOfChannel(o, group, shape, c,
                     [&](int64_t i) { variance += (x[i] - mean) * (x[i] - mean); });
    means[c] = mean;
    variances[c] = variance / count;
  }
}

// Turns the statistics of this rank's rows into those of all ranks' rows.
template <class T>
absl::Status MergeMoments(const Operands<T>& o, T* means, T* variances) {
  const Shape& shape = o.input_shape(0);
  const absl::Span<double> values = o.ranks->Values(shape[0]);
  double* const second = std::copy_n(means, shape[0], values.data());
  std::copy_n(variances, shape[0], second);
  TY_RETURN_IF_ERROR(o.ranks->Merge(o.rows, shape[1] * shape[2]));
  std::copy_n(values.data(), shape[0], means);
  std::copy_n(second, shape[0], variances);
  return absl::OkStatus();
}

template <class T>
void NormalizeGroup(const Operands<T>& o, int64_t group, const T* means, const T* variances) {
  const T* x = o.inputs[0];
  const Shape& shape = o.input_shape(0);
  const int residual = o.node.norm().residual;
  for (int64_t c = 0; c < shape[0]; ++c) {
    const T scale = o.inputs[1][c] / std::sqrt(variances[c] + static_cast<T>(o.node.norm().eps));
    const T bias = o.inputs[2][c];
    ForEachOfChannel(o, group, shape, c, [&](int64_t i) {
      T y = (x[i] - means[c]) * scale + bias;
      if (residual > 0) {
        y += o.inputs[static_cast<size_t>(residual)][i];
      }
      o.outputs[0][i] = o.node.relu ? Rectified(y) : y;
      if (o.outputs.size() > 3) {
        o.outputs[3][i] = y > 0 ? T{1} : T{0};
      }
    });
  }
}

// The statistics of groups lie one after the other: [groups, C].
}  // namespace

template <class T>
absl::Status RunBatchNorm(const Operands<T>& o) {
  const int64_t channels = o.input_shape(0)[0];
  for (int64_t group = 0; group < o.groups.count(); ++group) {
    if (!o.node.norm().batch_statistics) {
      NormalizeGroup(o, group, o.inputs[3] + group * channels, o.inputs[4] + group * channels);
      continue;
    }
    T* const means = o.outputs[1] + group * channels;
    T* const variances = o.outputs[2] + group * channels;
    Moments(o, group, means, variances);
    if (o.ranks != nullptr) {
      TY_RETURN_IF_ERROR(MergeMoments(o, means, variances));
    }
    NormalizeGroup(o, group, means, variances);
  }
  return absl::OkStatus();
}

template absl::Status RunBatchNorm(const Operands<float>&);
template absl::Status RunBatchNorm(const Operands<double>&);

namespace {

// With xhat = (x - mean) / std:  dbias = sum dy;  dweight = sum dy xhat;
// dx = weight / std (dy - dbias / n - xhat dweight / n)  (Ioffe & Szegedy 2015, section 3).
template <class T>
class NormGradient {
 public:
  NormGradient(const Operands<T>& operands, int64_t group)
      : o_(operands), group_(group), shape_(operands.input_shape(0)), x_(operands.inputs[1]) {
    dy_ = o_.node.norm().mask > 0 ? o_.outputs[3] : o_.inputs[0];
  }

  // Computes the gradient behind the rectifier at the end of a residual block.
  void ApplyMask() const {
    const NormAttributes& norm = o_.node.norm();
    if (norm.mask == 0) {
      return;
    }
    const T* mask = o_.inputs[static_cast<size_t>(norm.mask)];
    const T* second =
        norm.second_gradient > 0 ? o_.inputs[static_cast<size_t>(norm.second_gradient)] : nullptr;
    for (int64_t c = 0; c < shape_[0]; ++c) {
      ForEachOfChannel(o_, group_, shape_, c, [&](int64_t i) {
        const T whole = second == nullptr ? o_.inputs[0][i] : o_.inputs[0][i] + second[i];
        o_.outputs[3][i] = mask[i] > 0 ? whole : T{0};
      });
    }
  }

  void Sum(int64_t c, T& dbias, T& dweight) const {
    const Channel at = At(c);
    dbias = 0;
    dweight = 0;
    ForEachOfChannel(o_, group_, shape_, c, [&](int64_t i) {
      dbias += Masked(at, i);
      dweight += Masked(at, i) * (x_[i] - at.mean) * at.inverse;
    });
  }

  // Uses the sums over all `count` values of the channel.
  void WriteInput(int64_t c, T dbias, T dweight, T count) const {
    const int addend = o_.node.norm().addend;
    const T* added = addend > 0 ? o_.inputs[static_cast<size_t>(addend)] : nullptr;
    const Channel at = At(c);
    ForEachOfChannel(o_, group_, shape_, c, [&](int64_t i) {
      const T dx =
          at.weight * at.inverse *
          (Masked(at, i) - dbias / count - (x_[i] - at.mean) * at.inverse * dweight / count);
      o_.outputs[0][i] = added == nullptr ? dx : dx + added[i];
    });
  }

 private:
  struct Channel {
    T mean, inverse, weight;
    T scale, bias;  // of the forward op; the bias is read if the output was rectified
  };
  Channel At(int64_t c) const {
    const NormAttributes& norm = o_.node.norm();
    const int64_t at = group_ * shape_[0] + c;
    const T deviation = std::sqrt(o_.inputs[4][at] + static_cast<T>(norm.eps));
    const T weight = o_.inputs[2][c];
    return {o_.inputs[3][at], 1 / deviation, weight, weight / deviation,
            norm.bias > 0 ? o_.inputs[static_cast<size_t>(norm.bias)][c] : T{0}};
  }
  // This equals what the forward op computed, to the last bit.
  T Masked(const Channel& at, int64_t i) const {
    const bool is_cut = o_.node.norm().bias > 0 && !((x_[i] - at.mean) * at.scale + at.bias > 0);
    return is_cut ? T{0} : dy_[i];
  }

  const Operands<T>& o_;
  const int64_t group_;
  const Shape& shape_;
  const T* const x_;
  const T* dy_;
};

}  // namespace

// Parameters have only one gradient, for all groups.
template <class T>
absl::Status RunBatchNormGradient(const Operands<T>& o) {
  const Shape& shape = o.input_shape(0);
  const int64_t channels = shape[0];
  std::fill_n(o.outputs[1], channels, T{0});
  std::fill_n(o.outputs[2], channels, T{0});
  for (int64_t group = 0; group < o.groups.count(); ++group) {
    const NormGradient<T> gradient(o, group);
    gradient.ApplyMask();
    std::vector<T> sums(static_cast<size_t>(2 * channels));
    for (int64_t c = 0; c < channels; ++c) {
      T& dbias = sums[static_cast<size_t>(c)];
      T& dweight = sums[static_cast<size_t>(channels + c)];
      gradient.Sum(c, dbias, dweight);
      o.outputs[1][c] += dweight;
      o.outputs[2][c] += dbias;
    }
    int64_t rows = o.groups.rows(group, o.rows);
    if (o.ranks != nullptr) {
      const absl::Span<double> values = o.ranks->Values(channels);
      std::copy(sums.begin(), sums.end(), values.begin());
      TY_RETURN_IF_ERROR(o.ranks->Sum());
      std::copy(values.begin(), values.end(), sums.begin());
      rows = o.ranks->rows();
    }
    for (int64_t c = 0; o.outputs[0] != nullptr && c < channels; ++c) {
      gradient.WriteInput(c, sums[static_cast<size_t>(c)], sums[static_cast<size_t>(channels + c)],
                          static_cast<T>(rows * shape[1] * shape[2]));
    }
  }
  return absl::OkStatus();
}

template absl::Status RunBatchNormGradient(const Operands<float>&);
template absl::Status RunBatchNormGradient(const Operands<double>&);

}  // namespace trainyard::engine::reference
