// Pointwise operations with broadcasting, and changes of a tensor's shape in memory.
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"
#include "tests/testing/cuda_on_cpu/cudnn/pointwise_math.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

PointwiseSettings SettingsOf(const Descriptor& descriptor) {
  const auto number = [&](cudnnBackendAttributeName_t name, float fallback) {
    return static_cast<float>(descriptor.Number(name, static_cast<double>(fallback)));
  };
  PointwiseSettings settings;
  settings.mode = static_cast<cudnnPointwiseMode_t>(descriptor.Int(CUDNN_ATTR_POINTWISE_MODE, -1));
  settings.lower_clip = number(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
  settings.upper_clip =
      number(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, std::numeric_limits<float>::infinity());
  settings.lower_clip_slope = number(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
  settings.elu_alpha = number(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
  settings.softplus_beta = number(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1);
  settings.swish_beta = number(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
  return settings;
}

struct Pointwise {
  PointwiseSettings settings;
  PointwiseRule rule;
  std::vector<TensorSpec> inputs;  // x, b, t; for gradients x, dy
  TensorSpec output;
  float alpha1 = 1, alpha2 = 1;  // factors of x and b
};

void Run(const Pointwise& pointwise, Memory* memory) {
  const Order order = MemoryOrder(pointwise.output);
  const auto load = [&](size_t i) {
    return i < pointwise.inputs.size()
               ? memory->Load(pointwise.inputs[i], order, pointwise.output.dims)
               : std::vector<float>();
  };
  const std::vector<float> x = load(0), b = load(1), t = load(2);
  std::vector<float> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] =
        pointwise.rule.function(pointwise.alpha1 * x[i], b.empty() ? 0.0f : pointwise.alpha2 * b[i],
                                t.empty() ? 0.0f : t[i], pointwise.settings);
  }
  memory->Store(pointwise.output, order, y);
}

// Sets each element of y to its index along `axis`.
void RunIndex(const TensorSpec& output, size_t axis, Memory* memory) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < output.rank(); ++i) {
    inner *= output.dims[i];
  }
  std::vector<float> y(static_cast<size_t>(output.elements()));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = static_cast<float>(static_cast<int64_t>(i) / inner % output.dims[axis]);
  }
  memory->Store(output, y);
}

bool BroadcastsTo(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  bool fits = from.size() == to.size();
  for (size_t i = 0; fits && i < to.size(); ++i) {
    fits = from[i] == to[i] || from[i] == 1;
  }
  return fits;
}

cudnnStatus_t CompileIndex(const Descriptor& descriptor, const Descriptor& settings,
                           Operation* operation) {
  const auto output = FindTensor(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const auto input = FindTensor(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (!output || !input) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "an index needs x and y");
  }
  const int64_t axis = settings.Int(CUDNN_ATTR_POINTWISE_AXIS, -1);
  if (axis < 0 || axis >= static_cast<int64_t>(output->rank())) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat("index along axis ", axis, " of ", ShapeText(output->dims)));
  }
  TY_CUDNN_TRY(ExpectShape(
      input->dims == output->dims,
      absl::StrCat("index of ", ShapeText(input->dims), " into ", ShapeText(output->dims))));
  operation->inputs = {*input};
  operation->outputs = {*output};
  operation->run = [output = *output, axis](Memory* memory) {
    RunIndex(output, static_cast<size_t>(axis), memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t CompilePointwise(const Descriptor& descriptor, Operation* operation) {
  const Descriptor& settings = *descriptor.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  Pointwise pointwise;
  pointwise.settings = SettingsOf(settings);
  if (pointwise.settings.mode == CUDNN_POINTWISE_GEN_INDEX) {
    return CompileIndex(descriptor, settings, operation);
  }
  pointwise.rule = PointwiseRuleOf(pointwise.settings.mode);
  if (pointwise.rule.function == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat("pointwise mode ", static_cast<int>(pointwise.settings.mode)));
  }
  // Logical operations may declare a type of their own.
  const int64_t math = settings.Int(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (math != CUDNN_DATA_BOOLEAN && math != CUDNN_DATA_INT32) {
    TY_CUDNN_TRY(ExpectFloatMath(math));
  }
  const bool is_gradient = pointwise.rule.is_gradient;
  const cudnnBackendAttributeName_t names[] = {
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
      is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  const auto output = FindTensor(descriptor, is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                                                         : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if (!output) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a pointwise operation lacks its result");
  }
  for (int i = 0; i < 3; ++i) {
    const auto input = FindTensor(descriptor, names[i]);
    if (input.has_value() != (i < pointwise.rule.inputs)) {
      return Fail(CUDNN_STATUS_BAD_PARAM,
                  absl::StrCat("pointwise mode ", static_cast<int>(pointwise.settings.mode),
                               " takes ", pointwise.rule.inputs, " tensors; number ", i,
                               input ? " is too many" : " is missing"));
    }
    if (input) {
      TY_CUDNN_TRY(ExpectShape(BroadcastsTo(input->dims, output->dims),
                               absl::StrCat("pointwise: ", ShapeText(input->dims),
                                            " does not broadcast to ", ShapeText(output->dims))));
      pointwise.inputs.push_back(*input);
    }
  }
  pointwise.output = *output;
  pointwise.alpha1 =
      static_cast<float>(descriptor.Number(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1));
  pointwise.alpha2 =
      static_cast<float>(descriptor.Number(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1));
  operation->pointwise = pointwise.settings.mode;
  operation->inputs = pointwise.inputs;
  operation->outputs = {pointwise.output};
  operation->run = [pointwise = std::make_shared<const Pointwise>(std::move(pointwise))](
                       Memory* memory) { Run(*pointwise, memory); };
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CompileReshape(const Descriptor& descriptor, Operation* operation) {
  const TensorSpec x = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  const TensorSpec y = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  TY_CUDNN_TRY(
      ExpectShape(x.elements() == y.elements(),
                  absl::StrCat("reshape of ", ShapeText(x.dims), " into ", ShapeText(y.dims))));
  operation->inputs = {x};
  operation->outputs = {y};
  // Elements keep their order in memory, and only dimensions and strides are replaced. So a
  // transposition is a reshape to exchanged strides.
  operation->run = [x, y](Memory* memory) {
    memory->Store(y, MemoryOrder(y), memory->Load(x, MemoryOrder(x)));
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
