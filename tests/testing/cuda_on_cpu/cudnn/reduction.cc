// Reductions over the dimensions that are 1 in the result, and the statistics of channels.
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

double StartOf(cudnnReduceTensorOp_t mode) {
  switch (mode) {
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
      return 1;
    case CUDNN_REDUCE_TENSOR_MIN:
      return std::numeric_limits<double>::infinity();
    case CUDNN_REDUCE_TENSOR_MAX:
      return -std::numeric_limits<double>::infinity();
    default:
      return 0;
  }
}

void Accumulate(cudnnReduceTensorOp_t mode, double value, double* result) {
  switch (mode) {
    case CUDNN_REDUCE_TENSOR_MUL:
      *result *= value;
      break;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
      *result *= value == 0 ? 1 : value;
      break;
    case CUDNN_REDUCE_TENSOR_MIN:
      *result = std::isnan(value) || value < *result ? value : *result;
      break;
    case CUDNN_REDUCE_TENSOR_MAX:
      *result = std::isnan(value) || value > *result ? value : *result;
      break;
    case CUDNN_REDUCE_TENSOR_AMAX:
      *result = std::isnan(value) || std::abs(value) > *result ? std::abs(value) : *result;
      break;
    case CUDNN_REDUCE_TENSOR_NORM1:
      *result += std::abs(value);
      break;
    case CUDNN_REDUCE_TENSOR_NORM2:
      *result += value * value;
      break;
    case CUDNN_REDUCE_TENSOR_ADD:
    case CUDNN_REDUCE_TENSOR_AVG:
      *result += value;
      break;
  }
}

// Returns for each element of x in natural order the element of the result to which it belongs.
std::vector<size_t> TargetsOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& kept) {
  std::vector<size_t> targets = {0};
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    std::vector<size_t> finer;
    finer.reserve(targets.size() * static_cast<size_t>(dims[dim]));
    for (const size_t target : targets) {
      for (int64_t i = 0; i < dims[dim]; ++i) {
        finer.push_back(kept[dim] == 1
                            ? target
                            : target * static_cast<size_t>(dims[dim]) + static_cast<size_t>(i));
      }
    }
    targets = std::move(finer);
  }
  return targets;
}

void Run(const TensorSpec& input, const TensorSpec& output, cudnnReduceTensorOp_t mode,
         Memory* memory) {
  const std::vector<float> x = memory->Load(input);
  const std::vector<size_t> targets = TargetsOf(input.dims, output.dims);
  std::vector<double> results(static_cast<size_t>(output.elements()), StartOf(mode));
  for (size_t i = 0; i < x.size(); ++i) {
    Accumulate(mode, static_cast<double>(x[i]), &results[targets[i]]);
  }
  const int64_t count = input.elements() / output.elements();
  for (double& result : results) {
    if (mode == CUDNN_REDUCE_TENSOR_AVG) {
      result /= static_cast<double>(count);
    } else if (mode == CUDNN_REDUCE_TENSOR_NORM2) {
      result = std::sqrt(result);
    }
  }
  memory->Store(output, std::vector<float>(results.begin(), results.end()));
}

}  // namespace

cudnnStatus_t CompileReduction(const Descriptor& descriptor, Operation* operation) {
  const TensorSpec x = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const TensorSpec y = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  const Descriptor& settings = *descriptor.Child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  TY_CUDNN_TRY(ExpectFloatMath(settings.Int(CUDNN_ATTR_REDUCTION_COMP_TYPE, 0)));
  const int64_t mode = settings.Int(CUDNN_ATTR_REDUCTION_OPERATOR, -1);
  if (mode < CUDNN_REDUCE_TENSOR_ADD || mode > CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("reduction operator ", mode));
  }
  bool fits = x.rank() == y.rank();
  for (size_t i = 0; fits && i < x.rank(); ++i) {
    fits = y.dims[i] == x.dims[i] || y.dims[i] == 1;
  }
  TY_CUDNN_TRY(ExpectShape(
      fits, absl::StrCat("reduction of ", ShapeText(x.dims), " to ", ShapeText(y.dims))));
  operation->inputs = {x};
  operation->outputs = {y};
  operation->run = [x, y, mode](Memory* memory) {
    Run(x, y, static_cast<cudnnReduceTensorOp_t>(mode), memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CompileGenStats(const Descriptor& descriptor, Operation* operation) {
  const TensorSpec x = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
  const TensorSpec sum = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC);
  const TensorSpec square_sum = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC);
  TY_CUDNN_TRY(ExpectFloatMath(descriptor.Int(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, 0)));
  std::vector<int64_t> channels(x.rank(), 1);
  if (x.rank() >= 2) {
    channels[1] = x.dims[1];
  }
  TY_CUDNN_TRY(ExpectShape(x.rank() >= 2 && sum.dims == channels && square_sum.dims == channels,
                           absl::StrCat("statistics of ", ShapeText(x.dims), " into ",
                                        ShapeText(sum.dims), " and ", ShapeText(square_sum.dims))));
  operation->inputs = {x};
  operation->outputs = {sum, square_sum};
  operation->run = [x, sum, square_sum](Memory* memory) {
    Run(x, sum, CUDNN_REDUCE_TENSOR_ADD, memory);
    const std::vector<float> values = memory->Load(x);
    const std::vector<size_t> targets = TargetsOf(x.dims, square_sum.dims);
    std::vector<double> squares(static_cast<size_t>(square_sum.elements()), 0.0);
    for (size_t i = 0; i < values.size(); ++i) {
      squares[targets[i]] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    memory->Store(square_sum, std::vector<float>(squares.begin(), squares.end()));
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
