// Sums up the gradients of a batch norm's scale and bias, and finds the factors of the gradient at
// its input (Ioffe and Szegedy, "Batch Normalization" (2015), section 3):
//   h = (x - mean) inverse; dbias = sum dy; dscale = sum dy h
//   dx = scale inverse (dy - (dbias + h dscale) / pixels) = a dy + b x + c
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

struct NormSums {
  TensorSpec x, mean, inverse, scale, dy;
  TensorSpec dscale, dbias, a, b, c;
};

void Run(const NormSums& norm, Memory* memory) {
  const Order order = {1, 0, 2, 3};  // channel by channel
  const std::vector<float> x = memory->Load(norm.x, order), dy = memory->Load(norm.dy, order);
  const std::vector<float> mean = memory->Load(norm.mean), inverse = memory->Load(norm.inverse);
  const std::vector<float> scale = memory->Load(norm.scale);
  const size_t channels = mean.size(), pixels = x.size() / channels;
  std::vector<float> dscale(channels), dbias(channels), a(channels), b(channels), c(channels);
  for (size_t channel = 0; channel < channels; ++channel) {
    double sum = 0, product = 0;
    for (size_t i = channel * pixels; i < (channel + 1) * pixels; ++i) {
      sum += static_cast<double>(dy[i]);
      product += static_cast<double>(dy[i]) * static_cast<double>(x[i] - mean[channel]) *
                 static_cast<double>(inverse[channel]);
    }
    const double factor = static_cast<double>(scale[channel] * inverse[channel]);
    const double slope =
        -factor * product * static_cast<double>(inverse[channel]) / static_cast<double>(pixels);
    dbias[channel] = static_cast<float>(sum);
    dscale[channel] = static_cast<float>(product);
    a[channel] = static_cast<float>(factor);
    b[channel] = static_cast<float>(slope);
    c[channel] = static_cast<float>(-factor * sum / static_cast<double>(pixels) -
                                    slope * static_cast<double>(mean[channel]));
  }
  memory->Store(norm.dscale, dscale);
  memory->Store(norm.dbias, dbias);
  memory->Store(norm.a, a);
  memory->Store(norm.b, b);
  memory->Store(norm.c, c);
}

}  // namespace

cudnnStatus_t CompileNormSums(const Descriptor& descriptor, Operation* operation) {
  TY_CUDNN_TRY(ExpectFloatMath(descriptor.Int(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, 0)));
  const auto tensor = [&](cudnnBackendAttributeName_t name) {
    return *FindTensor(descriptor, name);
  };
  const NormSums norm = {tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
                         tensor(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS)};
  operation->inputs = {norm.x, norm.mean, norm.inverse, norm.scale, norm.dy};
  operation->outputs = {norm.dscale, norm.dbias, norm.a, norm.b, norm.c};
  TY_CUDNN_TRY(ExpectShape(norm.x.rank() == 4 && norm.dy.dims == norm.x.dims,
                           absl::StrCat("norm sums: x ", ShapeText(norm.x.dims), " and dy ",
                                        ShapeText(norm.dy.dims), " differ")));
  const std::vector<int64_t> channels = {1, norm.x.dims[1], 1, 1};
  for (const TensorSpec* spec : {&norm.mean, &norm.inverse, &norm.scale, &norm.dscale, &norm.dbias,
                                 &norm.a, &norm.b, &norm.c}) {
    TY_CUDNN_TRY(ExpectShape(spec->dims == channels,
                             absl::StrCat("norm sums of x ", ShapeText(norm.x.dims), ": tensor ",
                                          spec->id, " is ", ShapeText(spec->dims))));
  }
  operation->run = [norm = std::make_shared<const NormSums>(norm)](Memory* memory) {
    Run(*norm, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
