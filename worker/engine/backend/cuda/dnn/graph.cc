// Collects the descriptors of a graph, and finalizes it.
#include "worker/engine/backend/cuda/dnn/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Our allocations, and every view in them, are aligned to at least this.
constexpr int64_t kAlignment = kVectorBytes;

int64_t SizeOfElement(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_INT8:
      return 1;
    default:
      return 4;
  }
}

cudnnDataType_t MathOf(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_GEN_INDEX:
      return CUDNN_DATA_INT32;
    case CUDNN_POINTWISE_CMP_GE:
      return CUDNN_DATA_BOOLEAN;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

}  // namespace

int64_t Graph::WorkspaceBytes(int64_t plan_bytes) const {
  int64_t bytes = plan_bytes;
  for (const Slot& temporary : temporaries) {
    bytes = AlignUp(bytes) + temporary.bytes;
  }
  return bytes;
}

cudnnDataType_t DataType(Type type) {
  switch (type) {
    case Type::kF16:
      return CUDNN_DATA_HALF;
    case Type::kBf16:
      return CUDNN_DATA_BFLOAT16;
    case Type::kF32:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

std::vector<int64_t> PackedStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::vector<int64_t> ImageStrides(const std::vector<int64_t>& shape, int64_t pixel) {
  return {shape[2] * shape[3] * pixel, 1, shape[3] * pixel, pixel};
}

int64_t BytesOf(const Tensor& tensor) {
  int64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return (last + 1) * SizeOfElement(tensor.type);
}

GraphBuilder::Handle GraphBuilder::Add(Tensor tensor, absl::string_view name) {
  if (tensor.id == 0) {
    tensor.id = next_id_++;
  }
  const Handle made = Part(CUDNN_BACKEND_TENSOR_DESCRIPTOR, absl::StrCat("tensor ", name),
                           {{CUDNN_ATTR_TENSOR_DATA_TYPE, tensor.type},
                            {CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.shape},
                            {CUDNN_ATTR_TENSOR_STRIDES, tensor.strides},
                            {CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.id},
                            {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment},
                            {CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor.is_virtual}});
  if (!tensor.is_virtual) {
    (tensor.is_temporary ? graph_.temporaries : graph_.slots)
        .push_back({tensor.id, BytesOf(tensor)});
  }
  return made;
}

GraphBuilder::Handle GraphBuilder::AddScalar(float value, absl::string_view name) {
  const std::vector<int64_t> ones = {1, 1, 1, 1};
  const int64_t id = next_id_++;
  graph_.scalars.push_back({id, value});
  return Part(CUDNN_BACKEND_TENSOR_DESCRIPTOR, absl::StrCat("scalar ", name),
              {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT},
               {CUDNN_ATTR_TENSOR_DIMENSIONS, ones},
               {CUDNN_ATTR_TENSOR_STRIDES, ones},
               {CUDNN_ATTR_TENSOR_UNIQUE_ID, id},
               {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment},
               {CUDNN_ATTR_TENSOR_IS_BY_VALUE, true}});
}

GraphBuilder::Handle GraphBuilder::Part(cudnnBackendDescriptorType_t type, absl::string_view name,
                                        const std::vector<Attribute>& attributes) {
  if (!status_.ok()) {
    return nullptr;
  }
  absl::StatusOr<Descriptor> made = Descriptor::Make(type, name, attributes);
  if (!made.ok()) {
    status_ = made.status();
    return nullptr;
  }
  graph_.parts.push_back(*std::move(made));
  return graph_.parts.back().get();
}

void GraphBuilder::Operation(cudnnBackendDescriptorType_t type, absl::string_view name,
                             const std::vector<Attribute>& attributes) {
  operations_.push_back(Part(type, name, attributes));
}

void GraphBuilder::Pointwise(cudnnPointwiseMode_t mode, absl::string_view name, Handle x, Handle b,
                             Handle y, Handle t, int64_t axis) {
  std::vector<Attribute> how = {{CUDNN_ATTR_POINTWISE_MODE, mode},
                                {CUDNN_ATTR_POINTWISE_MATH_PREC, MathOf(mode)}};
  if (axis >= 0) {
    how.emplace_back(CUDNN_ATTR_POINTWISE_AXIS, axis);
  }
  const Handle pointwise = Part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, name, how);
  std::vector<Attribute> what = {Of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise),
                                 Of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x),
                                 Of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)};
  if (b != nullptr) {
    what.push_back(Of(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
  }
  if (t != nullptr) {
    what.push_back(Of(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t));
  }
  Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, name, what);
}

void GraphBuilder::ReluGradient(absl::string_view name, Handle x, Handle dy, Handle dx) {
  const Handle pointwise = Part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, name,
                                {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_RELU_BWD},
                                 {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT}});
  Operation(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, name,
      {Of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise),
       Of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x), Of(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy),
       Of(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx)});
}

void GraphBuilder::Reduce(cudnnReduceTensorOp_t operation, absl::string_view name, Handle x,
                          Handle y) {
  const Handle reduction = Part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, name,
                                {{CUDNN_ATTR_REDUCTION_OPERATOR, operation},
                                 {CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT}});
  Operation(
      CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, name,
      {Of(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction),
       Of(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x), Of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)});
}

void GraphBuilder::Reshape(absl::string_view name, Handle x, Handle y) {
  Operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, name,
            {Of(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x), Of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)});
}

void GraphBuilder::Matmul(absl::string_view name, Handle a, Handle b, Handle c) {
  const Handle matmul = Part(CUDNN_BACKEND_MATMUL_DESCRIPTOR, name,
                             {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT}});
  Operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, name,
            {Of(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul), Of(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a),
             Of(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b), Of(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)});
}

absl::StatusOr<Graph> GraphBuilder::Finish(cudnnHandle_t handle) && {
  if (!status_.ok()) {
    return status_;
  }
  std::vector<Attribute> attributes = {
      Attribute::Descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_)};
  if (handle != nullptr) {
    attributes.emplace_back(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  }
  absl::StatusOr<Descriptor> made =
      Descriptor::Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph", attributes);
  if (!made.ok()) {
    return made.status();
  }
  graph_.descriptor = *std::move(made);
  return std::move(graph_);
}

}  // namespace trainyard::engine::cuda::dnn
