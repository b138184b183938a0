// Computes batch normalization: statistics finalized from sums, forward and backward (Ioffe and
// Szegedy, "Batch Normalization" (2015), section 3).
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Doubles = std::vector<double>;

// Images [n, c, ...] are loaded channel by channel: [c, n, ...].
Order ChannelOrder(size_t rank) {
  Order order = NaturalOrder(rank);
  std::swap(order[0], order[1]);
  return order;
}

// [1, channels, 1, ...].
bool IsOfChannels(const TensorSpec& spec, int64_t channels, size_t rank) {
  return spec.rank() == rank && spec.dims[1] == channels && spec.elements() == channels;
}

Doubles LoadDoubles(const TensorSpec& spec, Memory* memory) {
  const std::vector<float> values = memory->Load(spec);
  return Doubles(values.begin(), values.end());
}

void StoreDoubles(const std::optional<TensorSpec>& spec, const Doubles& values, Memory* memory) {
  if (spec) {
    memory->Store(*spec, std::vector<float>(values.begin(), values.end()));
  }
}

// Reads the tensors of an operation, and records them as its inputs and outputs.
class Tensors {
 public:
  Tensors(const Descriptor& descriptor, Operation* operation)
      : descriptor_(descriptor), operation_(operation) {}

  std::optional<TensorSpec> In(cudnnBackendAttributeName_t name) {
    return Note(name, &operation_->inputs);
  }
  std::optional<TensorSpec> Out(cudnnBackendAttributeName_t name) {
    return Note(name, &operation_->outputs);
  }

 private:
  std::optional<TensorSpec> Note(cudnnBackendAttributeName_t name, std::vector<TensorSpec>* list) {
    auto spec = FindTensor(descriptor_, name);
    if (spec) {
      list->push_back(*spec);
    }
    return spec;
  }

  const Descriptor& descriptor_;
  Operation* operation_;
};

// The running statistics, and the factor by which one batch moves them. Either none is there or all
// five are.
struct Running {
  std::optional<TensorSpec> mean_in, variance_in, mean_out, variance_out, factor;

  bool is_complete() const { return mean_in && variance_in && mean_out && variance_out && factor; }
  bool is_absent() const { return !mean_in && !variance_in && !mean_out && !variance_out; }
};

// The running variance is the population's, estimated from `count` samples.
void UpdateRunning(const Running& running, const Doubles& mean, const Doubles& variance,
                   double count, Memory* memory) {
  if (!running.is_complete()) {
    return;
  }
  const double factor = memory->Scalar(*running.factor);
  Doubles running_mean = LoadDoubles(*running.mean_in, memory);
  Doubles running_variance = LoadDoubles(*running.variance_in, memory);
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  for (size_t c = 0; c < mean.size(); ++c) {
    running_mean[c] += factor * (mean[c] - running_mean[c]);
    running_variance[c] += factor * (variance[c] * unbiased - running_variance[c]);
  }
  StoreDoubles(running.mean_out, running_mean, memory);
  StoreDoubles(running.variance_out, running_variance, memory);
}

struct FinalizeStatistics {
  TensorSpec scale, bias, epsilon, factor_out, offset_out;
  std::optional<TensorSpec> sum, square_sum, mean_out, inverse_out, count;
  Running running;
  bool is_training = true;
};

void Run(const FinalizeStatistics& f, Memory* memory) {
  const Doubles scale = LoadDoubles(f.scale, memory), bias = LoadDoubles(f.bias, memory);
  const double epsilon = memory->Scalar(f.epsilon);
  Doubles mean, variance;
  if (f.is_training) {
    const double count = memory->Scalar(*f.count);
    mean = LoadDoubles(*f.sum, memory);
    variance = LoadDoubles(*f.square_sum, memory);
    for (size_t c = 0; c < mean.size(); ++c) {
      mean[c] /= count;
      variance[c] = std::max(0.0, variance[c] / count - mean[c] * mean[c]);
    }
    UpdateRunning(f.running, mean, variance, count, memory);
  } else {
    mean = LoadDoubles(*f.running.mean_in, memory);
    variance = LoadDoubles(*f.running.variance_in, memory);
  }
  Doubles inverse(mean.size()), factor(mean.size()), offset(mean.size());
  for (size_t c = 0; c < mean.size(); ++c) {
    inverse[c] = 1 / std::sqrt(variance[c] + epsilon);
    factor[c] = scale[c] * inverse[c];
    offset[c] = bias[c] - mean[c] * factor[c];
  }
  StoreDoubles(f.mean_out, mean, memory);
  StoreDoubles(f.inverse_out, inverse, memory);
  StoreDoubles(f.factor_out, factor, memory);
  StoreDoubles(f.offset_out, offset, memory);
}

struct NormForward {
  TensorSpec x, y, mean, inverse, scale, bias;
  std::optional<TensorSpec> epsilon;
  Running running;
  bool is_training = true;
};

void Run(const NormForward& norm, Memory* memory) {
  const Order order = ChannelOrder(norm.x.rank());
  std::vector<float> values = memory->Load(norm.x, order);
  const auto channels = static_cast<size_t>(norm.x.dims[1]);
  const size_t pixels = values.size() / channels;
  const Doubles scale = LoadDoubles(norm.scale, memory), bias = LoadDoubles(norm.bias, memory);
  Doubles mean(channels), inverse(channels);
  if (norm.is_training) {
    const double epsilon = memory->Scalar(*norm.epsilon);
    Doubles variance(channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = c * pixels; i < (c + 1) * pixels; ++i) {
        sum += static_cast<double>(values[i]);
      }
      mean[c] = sum / static_cast<double>(pixels);
      for (size_t i = c * pixels; i < (c + 1) * pixels; ++i) {
        const double centred = static_cast<double>(values[i]) - mean[c];
        squares += centred * centred;
      }
      variance[c] = squares / static_cast<double>(pixels);
      inverse[c] = 1 / std::sqrt(variance[c] + epsilon);
    }
    UpdateRunning(norm.running, mean, variance, static_cast<double>(pixels), memory);
    StoreDoubles(norm.mean, mean, memory);
    StoreDoubles(norm.inverse, inverse, memory);
  } else {
    mean = LoadDoubles(norm.mean, memory);
    inverse = LoadDoubles(norm.inverse, memory);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = i / pixels;
    values[i] = static_cast<float>(
        scale[c] * (static_cast<double>(values[i]) - mean[c]) * inverse[c] + bias[c]);
  }
  memory->Store(norm.y, order, values);
}

struct NormBackward {
  TensorSpec x, dy, dx, mean, inverse, scale, dscale, dbias;
};

void Run(const NormBackward& norm, Memory* memory) {
  const Order order = ChannelOrder(norm.x.rank());
  const std::vector<float> x = memory->Load(norm.x, order), dy = memory->Load(norm.dy, order);
  const Doubles mean = LoadDoubles(norm.mean, memory), inverse = LoadDoubles(norm.inverse, memory);
  const Doubles scale = LoadDoubles(norm.scale, memory);
  const size_t pixels = x.size() / mean.size();
  const auto count = static_cast<double>(pixels);
  std::vector<float> dx(x.size());
  Doubles dscale(mean.size(), 0.0), dbias(mean.size(), 0.0);
  const auto normalized = [&](size_t i) {
    return (static_cast<double>(x[i]) - mean[i / pixels]) * inverse[i / pixels];
  };
  for (size_t i = 0; i < x.size(); ++i) {
    dbias[i / pixels] += static_cast<double>(dy[i]);
    dscale[i / pixels] += static_cast<double>(dy[i]) * normalized(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i / pixels;
    dx[i] = static_cast<float>(
        scale[c] * inverse[c] *
        (static_cast<double>(dy[i]) - (dbias[c] + normalized(i) * dscale[c]) / count));
  }
  memory->Store(norm.dx, order, dx);
  StoreDoubles(norm.dscale, dscale, memory);
  StoreDoubles(norm.dbias, dbias, memory);
}

cudnnStatus_t ExpectBatchNorm(int64_t mode) {
  return mode == CUDNN_BATCH_NORM
             ? CUDNN_STATUS_SUCCESS
             : Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("norm mode ", mode));
}

// Checks that all inputs and outputs are images like `x`, or one number for each channel, or
// scalars.
cudnnStatus_t CheckShapes(const TensorSpec& x, const Operation& operation) {
  for (const auto* list : {&operation.inputs, &operation.outputs}) {
    for (const TensorSpec& spec : *list) {
      TY_CUDNN_TRY(ExpectShape(
          x.rank() >= 3 && (spec.dims == x.dims || IsOfChannels(spec, x.dims[1], x.rank()) ||
                            (spec.elements() == 1 && spec.rank() == x.rank())),
          absl::StrCat("norm of ", ShapeText(x.dims), ": tensor ", spec.id, " is ",
                       ShapeText(spec.dims))));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t CompileFinalizeStatistics(const Descriptor& descriptor, Operation* operation) {
  TY_CUDNN_TRY(ExpectFloatMath(descriptor.Int(CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC, 0)));
  Tensors tensors(descriptor, operation);
  FinalizeStatistics f;
  f.is_training = descriptor.Int(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE, 0) ==
                  CUDNN_BN_FINALIZE_STATISTICS_TRAINING;
  f.scale = *tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC);
  f.bias = *tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC);
  f.epsilon = *tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC);
  f.sum = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC);
  f.square_sum = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC);
  f.count = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC);
  f.running.mean_in = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC);
  f.running.variance_in = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC);
  f.running.factor = tensors.In(CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC);
  f.running.mean_out = tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC);
  f.running.variance_out = tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC);
  f.mean_out = tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC);
  f.inverse_out = tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC);
  f.factor_out = *tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC);
  f.offset_out = *tensors.Out(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC);
  if (f.is_training && (!f.sum || !f.square_sum || !f.count || !f.running.factor)) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                "finalize statistics in training: sums, their count and the factor are needed");
  }
  if (f.is_training ? !f.running.is_absent() && !f.running.is_complete()
                    : !f.running.mean_in || !f.running.variance_in) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "finalize statistics: running statistics are incomplete");
  }
  TY_CUDNN_TRY(CheckShapes(f.scale, *operation));
  operation->run = [f = std::make_shared<const FinalizeStatistics>(f)](Memory* memory) {
    Run(*f, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CompileNormForward(const Descriptor& descriptor, Operation* operation) {
  TY_CUDNN_TRY(ExpectBatchNorm(descriptor.Int(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, -1)));
  Tensors tensors(descriptor, operation);
  NormForward norm;
  norm.is_training =
      descriptor.Int(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, 0) == CUDNN_NORM_FWD_TRAINING;
  norm.x = *tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
  norm.scale = *tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC);
  norm.bias = *tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
  norm.epsilon = tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
  norm.running.factor = tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC);
  norm.running.mean_in = tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC);
  norm.running.variance_in = tensors.In(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC);
  norm.running.mean_out = tensors.Out(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC);
  norm.running.variance_out = tensors.Out(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC);
  const auto statistics = [&](cudnnBackendAttributeName_t name) {
    return norm.is_training ? *tensors.Out(name) : *tensors.In(name);
  };
  norm.mean = statistics(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC);
  norm.inverse = statistics(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
  norm.y = *tensors.Out(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC);
  if (norm.is_training && !norm.epsilon) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "norm in training: epsilon is needed");
  }
  if (!norm.running.is_absent() && !norm.running.is_complete()) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "norm: running statistics are incomplete");
  }
  TY_CUDNN_TRY(CheckShapes(norm.x, *operation));
  TY_CUDNN_TRY(ExpectShape(norm.y.dims == norm.x.dims, "norm: x and y differ in shape"));
  operation->run = [norm = std::make_shared<const NormForward>(norm)](Memory* memory) {
    Run(*norm, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CompileNormBackward(const Descriptor& descriptor, Operation* operation) {
  TY_CUDNN_TRY(ExpectBatchNorm(descriptor.Int(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, -1)));
  Tensors tensors(descriptor, operation);
  NormBackward norm;
  norm.x = *tensors.In(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  norm.dy = *tensors.In(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
  norm.mean = *tensors.In(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC);
  norm.inverse = *tensors.In(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
  norm.scale = *tensors.In(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC);
  norm.dx = *tensors.Out(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC);
  norm.dscale = *tensors.Out(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC);
  norm.dbias = *tensors.Out(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC);
  TY_CUDNN_TRY(CheckShapes(norm.x, *operation));
  TY_CUDNN_TRY(ExpectShape(norm.dy.dims == norm.x.dims && norm.dx.dims == norm.x.dims,
                           "norm: x and its gradients differ in shape"));
  operation->run = [norm = std::make_shared<const NormBackward>(norm)](Memory* memory) {
    Run(*norm, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
