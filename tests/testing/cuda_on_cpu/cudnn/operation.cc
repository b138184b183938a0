// Helpers for compiling operations from descriptors.
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::cuda_on_cpu::cudnn {

std::optional<TensorSpec> FindTensor(const Descriptor& descriptor,
                                     cudnnBackendAttributeName_t name) {
  const Descriptor* tensor = descriptor.Child(name);
  return tensor == nullptr ? std::nullopt : std::optional(SpecOf(*tensor));
}

std::string ShapeText(const std::vector<int64_t>& dims) {
  return absl::StrJoin(dims, "x");
}

cudnnStatus_t ExpectShape(bool is_right, const std::string& message) {
  return is_right ? CUDNN_STATUS_SUCCESS : Fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, message);
}

cudnnStatus_t ExpectFloatMath(int64_t type) {
  return type == CUDNN_DATA_FLOAT
             ? CUDNN_STATUS_SUCCESS
             : Fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                    absl::StrCat("arithmetic of type ", type, ", expected float"));
}

}  // namespace trainyard::cuda_on_cpu::cudnn
