// Expresses batch norm around a convolution as cuDNN's operations. cuDNN's engines look for exactly
// these operations in exactly this order.
#include "worker/engine/backend/cuda/dnn/norm_fusion.h"

#include "worker/engine/backend/cuda/dnn/conv_slots.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using Handle = GraphBuilder::Handle;

// The tensors of the norm that cuDNN reads.
struct NormTensors {
  Handle input, mean, inverse, weight, bias;
};

// Adds the input of the rectifier.
Handle AddNormOutput(GraphBuilder& builder, const Tensor& x, const NormTensors& norm) {
  const Handle centred = builder.Add(Intermediate(x), "centred");
  const Handle normalised = builder.Add(Intermediate(x), "normalised");
  const Handle scaled = builder.Add(Intermediate(x), "scaled");
  const Handle biased = builder.Add(Intermediate(x), "biased");
  builder.Pointwise(CUDNN_POINTWISE_SUB, "centre", norm.input, norm.mean, centred);
  builder.Pointwise(CUDNN_POINTWISE_MUL, "normalise", centred, norm.inverse, normalised);
  builder.Pointwise(CUDNN_POINTWISE_MUL, "scale", normalised, norm.weight, scaled);
  builder.Pointwise(CUDNN_POINTWISE_ADD, "bias", scaled, norm.bias, biased);
  return biased;
}

}  // namespace

Tensor Intermediate(const Tensor& tensor) {
  return {.type = CUDNN_DATA_FLOAT,
          .shape = tensor.shape,
          .strides = tensor.strides,
          .is_virtual = true};
}

Tensor PerChannel(int64_t id, int64_t channels) {
  return {.id = id, .shape = {1, channels, 1, 1}, .strides = {channels, 1, channels, channels}};
}

Handle AddNormalised(GraphBuilder& builder, const Tensor& x) {
  Tensor rectified = Intermediate(x);
  rectified.type = x.type;
  Tensor scale = PerChannel(kScale, x.shape[1]);
  Tensor shift = PerChannel(kShift, x.shape[1]);
  scale.type = shift.type = x.type;
  const Handle input = builder.Add(x, "x");
  const Handle scaled = builder.Add(Intermediate(x), "scaled");
  const Handle shifted = builder.Add(Intermediate(x), "shifted");
  const Handle result = builder.Add(rectified, "rectified");
  builder.Pointwise(CUDNN_POINTWISE_MUL, "scale", input, builder.Add(scale, "scale"), scaled);
  builder.Pointwise(CUDNN_POINTWISE_ADD, "shift", scaled, builder.Add(shift, "shift"), shifted);
  builder.Pointwise(CUDNN_POINTWISE_RELU_FWD, "relu", shifted, nullptr, result);
  return result;
}

void AddNormSums(GraphBuilder& builder, const Tensor& x, Handle gradient) {
  const int64_t channels = x.shape[1];
  const auto add = [&](int64_t id, const char* name) {
    return builder.Add(PerChannel(id, channels), name);
  };
  Tensor input = x;
  input.id = kNormInput;
  const NormTensors norm = {builder.Add(input, "norm input"), add(kNormMean, "mean"),
                            add(kNormInverse, "inverse deviation"), add(kNormWeight, "weight"),
                            add(kNormBias, "bias")};
  const Handle rectified = builder.Add(x, "rectified gradient");
  builder.ReluGradient("relu gradient", AddNormOutput(builder, x, norm), gradient, rectified);
  builder.Operation(
      CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, "norm sums",
      {{CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_DATA_FLOAT},
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, norm.mean),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, norm.inverse),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, norm.weight),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, norm.input),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, rectified),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, add(kNormWeightGradient, "dweight")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, add(kNormBiasGradient, "dbias")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
          add(kNormFactors, "gradient factor")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
          add(kNormFactors + 1, "input factor")),
       Of(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, add(kNormFactors + 2, "constant"))});
}

}  // namespace trainyard::engine::cuda::dnn
