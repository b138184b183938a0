// Makes descriptors for the tests of the emulated cuDNN.
#include "tests/unit/testing/cudnn_graphs.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <span>
#include <utility>

namespace trainyard::cuda_on_cpu {
namespace {

template <typename T>
Attribute Of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
             size_t count) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values, count));
  return {name, type, static_cast<int64_t>(count),
          std::vector<std::byte>(bytes.begin(), bytes.end())};
}

}  // namespace

Attribute Ints(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
  return Of(name, CUDNN_TYPE_INT64, values.data(), values.size());
}
Attribute Int(cudnnBackendAttributeName_t name, int64_t value) {
  return Ints(name, {value});
}
Attribute Flag(cudnnBackendAttributeName_t name, bool value) {
  return Of(name, CUDNN_TYPE_BOOLEAN, &value, 1);
}
Attribute Choice(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int value) {
  return Of(name, type, &value, 1);
}
Attribute Real(cudnnBackendAttributeName_t name, double value) {
  return Of(name, CUDNN_TYPE_DOUBLE, &value, 1);
}
Attribute Refer(cudnnBackendAttributeName_t name,
                const std::vector<cudnnBackendDescriptor_t>& descriptors) {
  return Of(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptors.data(), descriptors.size());
}
Attribute Text(cudnnBackendAttributeName_t name, const std::string& text) {
  return Of(name, CUDNN_TYPE_CHAR, text.data(), text.size());
}
Attribute Pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& pointers) {
  return Of(name, CUDNN_TYPE_VOID_PTR, pointers.data(), pointers.size());
}

Cudnn::Cudnn() {
  EXPECT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  EXPECT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
}

Cudnn::~Cudnn() {
  for (const Descriptor descriptor : descriptors_) {
    EXPECT_EQ(cudnnBackendDestroyDescriptor(descriptor), CUDNN_STATUS_SUCCESS) << LastError();
  }
  EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
}

Cudnn::Descriptor Cudnn::Create(cudnnBackendDescriptorType_t type) {
  Descriptor descriptor = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(type, &descriptor), CUDNN_STATUS_SUCCESS) << LastError();
  descriptors_.push_back(descriptor);
  return descriptor;
}

cudnnStatus_t Cudnn::Try(cudnnBackendDescriptorType_t type,
                         const std::vector<Attribute>& attributes, Descriptor* made) {
  const Descriptor descriptor = Create(type);
  if (made != nullptr) {
    *made = descriptor;
  }
  for (const Attribute& attribute : attributes) {
    const cudnnStatus_t status = cudnnBackendSetAttribute(
        descriptor, attribute.name, attribute.type, attribute.count, attribute.bytes.data());
    if (status != CUDNN_STATUS_SUCCESS) {
      return status;
    }
  }
  return cudnnBackendFinalize(descriptor);
}

Cudnn::Descriptor Cudnn::Make(cudnnBackendDescriptorType_t type,
                              const std::vector<Attribute>& attributes) {
  Descriptor made = nullptr;
  EXPECT_EQ(Try(type, attributes, &made), CUDNN_STATUS_SUCCESS) << LastError();
  return made;
}

Cudnn::Descriptor Cudnn::Tensor(int64_t id, const std::vector<int64_t>& dims,
                                const TensorOptions& options) {
  std::vector<int64_t> strides = options.strides;
  if (strides.empty()) {
    strides.assign(dims.size(), 1);
    for (size_t i = dims.size() - 1; i-- > 0;) {
      strides[i] = strides[i + 1] * dims[i + 1];
    }
  }
  return Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR,
              {Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, id),
               Choice(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, options.type),
               Ints(CUDNN_ATTR_TENSOR_DIMENSIONS, dims), Ints(CUDNN_ATTR_TENSOR_STRIDES, strides),
               Int(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, options.alignment),
               Flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL, options.is_virtual),
               Flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE, options.is_by_value)});
}

Cudnn::Descriptor Cudnn::Operation(cudnnBackendDescriptorType_t type,
                                   const std::map<cudnnBackendAttributeName_t, Descriptor>& parts) {
  std::vector<Attribute> attributes;
  for (const auto& [name, part] : parts) {
    if (part != nullptr) {
      attributes.push_back(Refer(name, {part}));
    }
  }
  return Make(type, attributes);
}

Cudnn::Descriptor Cudnn::Pointwise(cudnnPointwiseMode_t mode, Descriptor y, Descriptor x,
                                   Descriptor b, Descriptor t, int64_t axis) {
  const Descriptor settings =
      Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
           {Choice(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode),
            Choice(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
            Int(CUDNN_ATTR_POINTWISE_AXIS, axis)});
  const bool is_gradient = mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ;
  return Operation(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings},
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
       {is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        b},
       {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t},
       {is_gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        y}});
}

Cudnn::Descriptor Cudnn::Graph(const std::vector<Descriptor>& operations) {
  return Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
              {Refer(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations)});
}

Cudnn::Descriptor Cudnn::Config(Descriptor graph, int64_t engine) {
  const Descriptor made =
      Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, {Refer(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph}),
                                             Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, engine)});
  return Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {Refer(CUDNN_ATTR_ENGINECFG_ENGINE, {made})});
}

namespace {

std::vector<Attribute> PlanAttributes(cudnnHandle_t handle, cudnnBackendDescriptor_t config) {
  return {Of(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle, 1),
          Refer(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {config})};
}

}  // namespace

Cudnn::Descriptor Cudnn::Plan(Descriptor graph, int64_t engine) {
  return Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
              PlanAttributes(handle_, Config(graph, engine)));
}

cudnnStatus_t Cudnn::TryPlan(Descriptor graph, int64_t engine) {
  return Try(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
             PlanAttributes(handle_, Config(graph, engine)));
}

cudnnStatus_t Cudnn::Execute(Descriptor plan, const std::map<int64_t, void*>& tensors,
                             void* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : tensors) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  const Descriptor pack = Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                               {Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids),
                                Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers),
                                Pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace})});
  const cudnnStatus_t status = cudnnBackendExecute(handle_, plan, pack);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  return status;
}

void Cudnn::Run(const std::vector<Descriptor>& operations,
                const std::map<int64_t, void*>& tensors) {
  EXPECT_EQ(Execute(Plan(Graph(operations)), tensors), CUDNN_STATUS_SUCCESS) << LastError();
}

std::string LastError() {
  char message[1024];
  cudnnGetLastErrorString(message, sizeof(message));
  return message;
}

std::vector<float> Numbers(size_t count, uint64_t seed) {
  std::vector<float> numbers;
  uint64_t state = seed * 2862933555777941757u + 3037000493u;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    numbers.push_back(static_cast<float>(static_cast<int64_t>(state >> 57) - 64) / 64);
  }
  return numbers;
}

}  // namespace trainyard::cuda_on_cpu
