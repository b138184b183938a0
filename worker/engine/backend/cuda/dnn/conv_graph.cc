// Expresses a convolution and its epilogue as cuDNN's operations.
#include "worker/engine/backend/cuda/dnn/conv_graph.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/norm_fusion.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using Handle = GraphBuilder::Handle;

int64_t OutputOf(int64_t size, const ConvProblem& p) {
  return (size + 2 * p.padding - p.dilation * (p.kernel - 1) - 1) / p.stride + 1;
}

absl::Status Check(const ConvProblem& p) {
  const bool forward = p.kind == ConvProblem::Kind::kForward;
  if (p.rows < 1 || p.channels < 1 || p.out_channels < 1 || p.kernel < 1 || p.stride < 1 ||
      p.padding < 0 || p.dilation < 1 || p.groups < 1 || p.channels % p.groups != 0 ||
      p.out_channels % p.groups != 0 || p.out_height != OutputOf(p.height, p) ||
      p.out_width != OutputOf(p.width, p) || p.out_height < 1 || p.out_width < 1 ||
      p.x_stride < p.channels || p.y_stride < p.out_channels ||
      (p.f32_gradient && p.kind != ConvProblem::Kind::kWeightGradient) ||
      (!forward && (p.bias || p.relu || p.statistics)) || (p.statistics && (p.bias || p.relu)) ||
      (p.normalises && (p.kind == ConvProblem::Kind::kInputGradient || p.bias || p.relu ||
                        p.f32_gradient || p.groups > 1)) ||
      (p.norm_sums && (p.kind != ConvProblem::Kind::kInputGradient || p.groups > 1))) {
    return absl::InvalidArgumentError(absl::StrCat("no convolution: ", p.Key()));
  }
  return absl::OkStatus();
}

Handle Convolution(GraphBuilder& builder, const ConvProblem& p) {
  const auto both = [](int64_t value) { return std::vector<int64_t>{value, value}; };
  return builder.Part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution",
                      {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT},
                       {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION},
                       {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2}},
                       {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(p.padding)},
                       {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(p.padding)},
                       {CUDNN_ATTR_CONVOLUTION_DILATIONS, both(p.dilation)},
                       {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(p.stride)}});
}

void AddForward(GraphBuilder& builder, const ConvProblem& p, Handle x, Handle weight,
                const Tensor& y_tensor) {
  const Handle y = builder.Add(y_tensor, "y");
  Handle sum = p.bias || p.relu ? builder.Add(Intermediate(y_tensor), "products") : y;
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "forward convolution",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, Convolution(builder, p)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, sum),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F}});
  if (p.bias) {
    const Handle bias = builder.Add(PerChannel(kBias, p.out_channels), "bias");
    const Handle biased = p.relu ? builder.Add(Intermediate(y_tensor), "biased") : y;
    builder.Pointwise(CUDNN_POINTWISE_ADD, "bias", sum, bias, biased);
    sum = biased;
  }
  if (p.relu) {
    builder.Pointwise(CUDNN_POINTWISE_RELU_FWD, "relu", sum, nullptr, y);
  }
  if (p.statistics) {
    const Handle total = builder.Add(PerChannel(kSum, p.out_channels), "sum");
    const Handle squares = builder.Add(PerChannel(kSquareSum, p.out_channels), "square sum");
    builder.Operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "statistics",
                      {{CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM},
                       {CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT},
                       Of(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y),
                       Of(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, total),
                       Of(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares)});
  }
}

void AddInputGradient(GraphBuilder& builder, const ConvProblem& p, const Tensor& x, Handle weight,
                      Handle dy) {
  const Handle dx = builder.Add(p.norm_sums ? Intermediate(x) : x, "dx");
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "input gradient",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, Convolution(builder, p)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, weight),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F}});
  if (p.norm_sums) AddNormSums(builder, x, dx);
}

// A gradient with a wider type than its operands takes an operation of its own. No engine for
// weight gradients writes it, but those that compile an epilogue do.
void AddWeightGradient(GraphBuilder& builder, const ConvProblem& p, Handle x, Tensor weight,
                       Handle dy) {
  const bool widens = p.f32_gradient && p.type != Type::kF32;
  const Handle products = builder.Add(widens ? Intermediate(weight) : weight, "weight gradient");
  builder.Operation(
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "weight gradient",
      {Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, Convolution(builder, p)),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, products),
       Of(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy),
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F}});
  if (widens) {
    weight.type = CUDNN_DATA_FLOAT;
    builder.Pointwise(CUDNN_POINTWISE_IDENTITY, "widen", products, nullptr,
                      builder.Add(weight, "wide weight gradient"));
  }
}

}  // namespace

absl::StatusOr<Graph> BuildConvGraph(const ConvProblem& p, cudnnHandle_t handle) {
  TY_RETURN_IF_ERROR(Check(p));
  const cudnnDataType_t type = DataType(p.type);
  Tensor x = {.id = kX, .type = type, .shape = {p.rows, p.channels, p.height, p.width}};
  x.strides = ImageStrides(x.shape, p.x_stride);
  Tensor y = {.id = kY, .type = type, .shape = {p.rows, p.out_channels, p.out_height, p.out_width}};
  y.strides = ImageStrides(y.shape, p.y_stride);
  Tensor weight = {.id = kWeight,
                   .type = type,
                   .shape = {p.out_channels, p.channels / p.groups, p.kernel, p.kernel}};
  weight.strides = ImageStrides(weight.shape, p.channels / p.groups);

  GraphBuilder builder;
  const Handle input = p.kind == ConvProblem::Kind::kInputGradient ? nullptr
                       : p.normalises                              ? AddNormalised(builder, x)
                                                                   : builder.Add(x, "x");
  switch (p.kind) {
    case ConvProblem::Kind::kForward:
      AddForward(builder, p, input, builder.Add(weight, "weight"), y);
      break;
    case ConvProblem::Kind::kInputGradient:
      AddInputGradient(builder, p, x, builder.Add(weight, "weight"), builder.Add(y, "dy"));
      break;
    case ConvProblem::Kind::kWeightGradient:
      AddWeightGradient(builder, p, input, weight, builder.Add(y, "dy"));
      break;
  }
  absl::StatusOr<Graph> graph = std::move(builder).Finish(handle);
  if (!graph.ok()) return graph;
  // The three factors of a norm follow each other.
  for (Slot& slot : graph->slots) {
    if (slot.id <= kNormFactors || slot.id > kNormFactors + 2) continue;
    slot.whole = kNormFactors;
    slot.offset = (slot.id - kNormFactors) * slot.bytes;
  }
  return graph;
}

}  // namespace trainyard::engine::cuda::dnn
