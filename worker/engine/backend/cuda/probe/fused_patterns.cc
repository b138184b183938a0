// Lists patterns of convolutions with a batch norm before or after them.
#include <utility>

#include "worker/engine/backend/cuda/probe/patterns.h"

namespace trainyard::engine::cuda::probe {
namespace {

using dnn::Graph;
using dnn::GraphBuilder;
using dnn::Of;
using Handle = GraphBuilder::Handle;

// Adds relu(x scale + bias), of which the convolution reads only the result.
Handle NormalisedInput(GraphBuilder& builder, Type type) {
  const cudnnDataType_t data_type = dnn::DataType(type);
  const Handle x = builder.Add(Image(type), "x");
  const Handle scaled = builder.Add(Image(type, true), "scaled");
  const Handle biased = builder.Add(Image(type, true), "biased");
  const Handle rectified = builder.Add(Image(type, true), "rectified");
  builder.Pointwise(CUDNN_POINTWISE_MUL, "scale", x, builder.Add(PerChannel(data_type), "scale"),
                    scaled);
  builder.Pointwise(CUDNN_POINTWISE_ADD, "bias", scaled, builder.Add(PerChannel(data_type), "bias"),
                    biased);
  builder.Pointwise(CUDNN_POINTWISE_RELU_FWD, "relu", biased, nullptr, rectified);
  return rectified;
}

absl::StatusOr<Graph> NormConvStatistics(Type type, bool, cudnnHandle_t handle) {
  GraphBuilder builder;
  const Handle x = NormalisedInput(builder, type);
  const Handle y = builder.Add(Image(type), "y");
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "convolution",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, Convolution(builder)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, builder.Add(Weight(type), "weight")),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F}});
  builder.Operation(
      CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "statistics",
      {{CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM},
       {CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT},
       Of(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y),
       Of(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, builder.Add(PerChannel(), "sum")),
       Of(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, builder.Add(PerChannel(), "square sum"))});
  return std::move(builder).Finish(handle);
}

absl::StatusOr<Graph> NormWeightGradient(Type type, bool, cudnnHandle_t handle) {
  GraphBuilder builder;
  const Handle x = NormalisedInput(builder, type);
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "weight gradient",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, Convolution(builder)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, builder.Add(Weight(type), "dweight")),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, builder.Add(Image(type), "dy")),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F}});
  return std::move(builder).Finish(handle);
}

// Adds the input of the rectifier, computed from the input of the batch norm.
Handle NormOutput(GraphBuilder& builder, Type type, Handle x, Handle mean, Handle deviation,
                  Handle scale) {
  const Handle bias = builder.Add(PerChannel(), "bias");
  dnn::Tensor wide = Image(type, true);
  wide.type = CUDNN_DATA_FLOAT;
  const Handle centred = builder.Add(wide, "centred");
  const Handle normalised = builder.Add(wide, "normalised");
  const Handle scaled = builder.Add(wide, "scaled");
  const Handle biased = builder.Add(wide, "biased");
  builder.Pointwise(CUDNN_POINTWISE_SUB, "centre", x, mean, centred);
  builder.Pointwise(CUDNN_POINTWISE_MUL, "normalise", centred, deviation, normalised);
  builder.Pointwise(CUDNN_POINTWISE_MUL, "scale", normalised, scale, scaled);
  builder.Pointwise(CUDNN_POINTWISE_ADD, "bias", scaled, bias, biased);
  return biased;
}

absl::StatusOr<Graph> InputGradientReluNorm(Type type, bool, cudnnHandle_t handle) {
  GraphBuilder builder;
  dnn::Tensor wide = Image(type, true);
  wide.type = CUDNN_DATA_FLOAT;
  const Handle gradient = builder.Add(wide, "gradient");
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "input gradient",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, Convolution(builder)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, gradient),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, builder.Add(Weight(type), "weight")),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, builder.Add(Image(type), "dy")),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F}});
  const Handle x = builder.Add(Image(type), "x");
  const Handle mean = builder.Add(PerChannel(), "mean");
  const Handle deviation = builder.Add(PerChannel(), "inverse deviation");
  const Handle scale = builder.Add(PerChannel(), "scale");
  const Handle output = NormOutput(builder, type, x, mean, deviation, scale);
  const Handle rectified = builder.Add(Image(type), "rectified gradient");
  builder.ReluGradient("relu gradient", output, gradient, rectified);
  builder.Operation(
      CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, "batch norm's weights",
      {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT},
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, deviation),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, scale),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, rectified),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, builder.Add(PerChannel(), "dscale")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, builder.Add(PerChannel(), "dbias")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, builder.Add(PerChannel(), "a")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, builder.Add(PerChannel(), "b")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, builder.Add(PerChannel(), "c"))});
  return std::move(builder).Finish(handle);
}

}  // namespace

dnn::Tensor Image(Type type, bool is_virtual) {
  dnn::Tensor tensor = {.type = dnn::DataType(type),
                        .shape = {kRows, kChannels, kSize, kSize},
                        .is_virtual = is_virtual};
  tensor.strides = dnn::ImageStrides(tensor.shape, kChannels);
  return tensor;
}

dnn::Tensor PerChannel(cudnnDataType_t type) {
  return {
      .type = type, .shape = {1, kChannels, 1, 1}, .strides = {kChannels, 1, kChannels, kChannels}};
}

dnn::Tensor Weight(Type type) {
  dnn::Tensor tensor = {.type = dnn::DataType(type), .shape = {kChannels, kChannels, 3, 3}};
  tensor.strides = dnn::ImageStrides(tensor.shape, kChannels);
  return tensor;
}

Handle Convolution(GraphBuilder& builder) {
  const std::vector<int64_t> ones = {1, 1};
  return builder.Part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution",
                      {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT},
                       {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION},
                       {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2}},
                       {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, ones},
                       {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, ones},
                       {CUDNN_ATTR_CONVOLUTION_DILATIONS, ones},
                       {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, ones}});
}

std::vector<Pattern> FusedConvPatterns() {
  return {{"scale + bias + relu + conv + genstats", NormConvStatistics},
          {"dgrad + relu gradient + batch norm's weights", InputGradientReluNorm},
          {"scale + bias + relu + wgrad", NormWeightGradient}};
}

}  // namespace trainyard::engine::cuda::probe
