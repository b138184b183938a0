// Lists patterns of batch norm, layer norm and pooling.
#include <utility>

#include "worker/engine/backend/cuda/dnn/norm_fusion.h"
#include "worker/engine/backend/cuda/probe/patterns.h"

namespace trainyard::engine::cuda::probe {
namespace {

using dnn::Attribute;
using dnn::Graph;
using dnn::GraphBuilder;
using dnn::Of;
using Handle = GraphBuilder::Handle;

dnn::Tensor Image(Type type) {
  dnn::Tensor tensor = {.type = dnn::DataType(type), .shape = {kRows, kChannels, kSize, kSize}};
  tensor.strides = dnn::ImageStrides(tensor.shape, kChannels);
  return tensor;
}

// Returns a tensor of [1, C, 1, 1], which gets the next id.
dnn::Tensor PerChannel() {
  return dnn::PerChannel(0, kChannels);
}

// The rows of layer norm are vectors: [8192, 768, 1, 1].
dnn::Tensor Rows(Type type) {
  return {.type = dnn::DataType(type), .shape = {8192, 768, 1, 1}, .strides = {768, 1, 768, 768}};
}

dnn::Tensor NormTensor(cudnnBackendNormMode_t mode, Type type, bool is_virtual = false) {
  dnn::Tensor tensor = mode == CUDNN_BATCH_NORM ? Image(type) : Rows(type);
  tensor.is_virtual = is_virtual;
  return tensor;
}

// Adds the scale or the bias.
dnn::Tensor NormWeight(cudnnBackendNormMode_t mode) {
  return mode == CUDNN_BATCH_NORM
             ? PerChannel()
             : dnn::Tensor{.shape = {1, 768, 1, 1}, .strides = {768, 1, 768, 768}};
}

// Adds the mean or the inverse deviation.
dnn::Tensor NormStatistic(cudnnBackendNormMode_t mode) {
  return mode == CUDNN_BATCH_NORM ? PerChannel()
                                  : dnn::Tensor{.shape = {8192, 1, 1, 1}, .strides = {1, 1, 1, 1}};
}

absl::StatusOr<Graph> Forward(cudnnBackendNormMode_t mode, Type type, bool adds, bool rectifies,
                              cudnnHandle_t handle) {
  GraphBuilder builder;
  const Handle y = builder.Add(NormTensor(mode, type, adds || rectifies), "norm");
  const auto add = [&](const dnn::Tensor& tensor, const char* name) {
    return builder.Add(tensor, name);
  };
  std::vector<Attribute> attributes = {
      {CUDNN_ATTR_OPERATION_NORM_FWD_MODE, mode},
      {CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING},
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, add(NormTensor(mode, type), "x")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, add(NormStatistic(mode), "mean")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, add(NormStatistic(mode), "deviation")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, add(NormWeight(mode), "scale")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, add(NormWeight(mode), "bias")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, builder.AddScalar(1e-5F, "epsilon")),
      Of(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, y)};
  if (mode == CUDNN_BATCH_NORM) {
    const dnn::Tensor running = PerChannel();
    attributes.push_back(
        Of(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, builder.AddScalar(0.1F, "momentum")));
    attributes.push_back(
        Of(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, add(running, "old mean")));
    attributes.push_back(
        Of(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, add(running, "old variance")));
    attributes.push_back(
        Of(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, add(running, "new mean")));
    attributes.push_back(
        Of(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, add(running, "new variance")));
  }
  builder.Operation(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, "norm", attributes);
  Handle last = y;
  if (adds) {
    const Handle sum = add(NormTensor(mode, type, rectifies), "sum");
    builder.Pointwise(CUDNN_POINTWISE_ADD, "add", y, add(NormTensor(mode, type), "residual"), sum);
    last = sum;
  }
  if (rectifies) {
    builder.Pointwise(CUDNN_POINTWISE_RELU_FWD, "relu", last, nullptr,
                      add(NormTensor(mode, type), "y"));
  }
  return std::move(builder).Finish(handle);
}

absl::StatusOr<Graph> Gradient(cudnnBackendNormMode_t mode, Type type, cudnnHandle_t handle) {
  GraphBuilder builder;
  const auto add = [&](const dnn::Tensor& tensor, const char* name) {
    return builder.Add(tensor, name);
  };
  builder.Operation(
      CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, "norm gradient",
      {{CUDNN_ATTR_OPERATION_NORM_BWD_MODE, mode},
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, add(NormTensor(mode, type), "x")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, add(NormStatistic(mode), "mean")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, add(NormStatistic(mode), "deviation")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, add(NormTensor(mode, type), "dy")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, add(NormWeight(mode), "scale")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, add(NormWeight(mode), "dscale")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, add(NormWeight(mode), "dbias")),
       Of(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, add(NormTensor(mode, type), "dx"))});
  return std::move(builder).Finish(handle);
}

Pattern ForwardPattern(std::string name, cudnnBackendNormMode_t mode, bool adds, bool rectifies) {
  return {std::move(name), [=](Type type, bool, cudnnHandle_t handle) {
            return Forward(mode, type, adds, rectifies, handle);
          }};
}

Pattern GradientPattern(std::string name, cudnnBackendNormMode_t mode) {
  return {std::move(name),
          [=](Type type, bool, cudnnHandle_t handle) { return Gradient(mode, type, handle); }};
}

// The windows are 3 x 3, with stride 2 and padding 1.
absl::StatusOr<Graph> Resample(cudnnResampleMode_t mode, bool is_gradient, Type type,
                               cudnnHandle_t handle) {
  GraphBuilder builder;
  const auto both = [](int64_t value) {
    return std::vector<cudnnFraction_t>{{value, 1}, {value, 1}};
  };
  const bool is_max = mode == CUDNN_RESAMPLE_MAXPOOL;
  const Handle how =
      builder.Part(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, "pooling",
                   {{CUDNN_ATTR_RESAMPLE_MODE, mode},
                    {CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_DATA_FLOAT},
                    {CUDNN_ATTR_RESAMPLE_PADDING_MODE, is_max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD},
                    {CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, int64_t{2}},
                    {CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, both(3)},
                    {CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, both(1)},
                    {CUDNN_ATTR_RESAMPLE_POST_PADDINGS, both(1)},
                    {CUDNN_ATTR_RESAMPLE_STRIDES, both(2)}});
  dnn::Tensor small = Image(type);
  small.shape[2] = small.shape[3] = kSize / 2;
  small.strides = dnn::ImageStrides(small.shape, kChannels);
  dnn::Tensor index = small;
  index.type = CUDNN_DATA_INT8;
  const Handle x = builder.Add(Image(type), "x");
  const Handle y = builder.Add(small, "y");
  std::vector<Attribute> attributes;
  if (is_gradient) {
    attributes = {Of(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, how),
                  Of(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, x),
                  Of(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, y)};
  } else {
    attributes = {Of(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, how),
                  Of(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x),
                  Of(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y)};
  }
  if (is_max) {
    attributes.push_back(Of(is_gradient ? CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC
                                        : CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC,
                            builder.Add(index, "index")));
  }
  builder.Operation(is_gradient ? CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR
                                : CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                    "pooling", attributes);
  return std::move(builder).Finish(handle);
}

Pattern ResamplePattern(std::string name, cudnnResampleMode_t mode, bool is_gradient) {
  return {std::move(name), [=](Type type, bool, cudnnHandle_t handle) {
            return Resample(mode, is_gradient, type, handle);
          }};
}

}  // namespace

std::vector<Pattern> NormPatterns() {
  return {ForwardPattern("batch norm", CUDNN_BATCH_NORM, false, false),
          ForwardPattern("batch norm + relu", CUDNN_BATCH_NORM, false, true),
          ForwardPattern("batch norm + add + relu", CUDNN_BATCH_NORM, true, true),
          GradientPattern("batch norm gradient", CUDNN_BATCH_NORM),
          ForwardPattern("layer norm", CUDNN_LAYER_NORM, false, false),
          GradientPattern("layer norm gradient", CUDNN_LAYER_NORM)};
}

std::vector<Pattern> ResamplePatterns() {
  return {ResamplePattern("max pool with index", CUDNN_RESAMPLE_MAXPOOL, false),
          ResamplePattern("max pool gradient", CUDNN_RESAMPLE_MAXPOOL, true),
          ResamplePattern("average pool", CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, false),
          ResamplePattern("average pool gradient", CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, true)};
}

}  // namespace trainyard::engine::cuda::probe
