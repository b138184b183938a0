// Calls cuDNN's backend interface, and turns its errors into statuses.
#include "worker/engine/backend/cuda/dnn/descriptor.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

absl::StatusCode CodeOf(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return absl::StatusCode::kResourceExhausted;
    case CUDNN_STATUS_NOT_INITIALIZED:
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
      return absl::StatusCode::kUnavailable;
    default:
      break;
  }
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case 2000:
      return absl::StatusCode::kInvalidArgument;
    case 3000:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string LastMessage() {
  std::array<char, 2048> text = {};
  cudnnGetLastErrorString(text.data(), text.size());
  text.back() = '\0';
  return std::string(absl::StripAsciiWhitespace(text.data()));
}

}  // namespace

absl::Status StatusOf(cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  std::string message = absl::StrCat(what, ": ", cudnnGetErrorString(status));
  const std::string detail = LastMessage();
  if (!detail.empty()) {
    absl::StrAppend(&message, " (", detail, ")");
  }
  return absl::Status(CodeOf(status), message);
}

Attribute::Attribute(cudnnBackendAttributeName_t name, const Descriptor& descriptor)
    : Attribute(Descriptors(name, {descriptor.get()})) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (descriptor_ != nullptr) {
      cudnnBackendDestroyDescriptor(descriptor_);
    }
    descriptor_ = std::exchange(other.descriptor_, nullptr);
    name_ = std::move(other.name_);
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) {
    cudnnBackendDestroyDescriptor(descriptor_);
  }
}

absl::StatusOr<Descriptor> Descriptor::Create(cudnnBackendDescriptorType_t type,
                                              absl::string_view name) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  TY_RETURN_IF_ERROR(
      StatusOf(cudnnBackendCreateDescriptor(type, &descriptor), absl::StrCat("create ", name)));
  return Descriptor(descriptor, name);
}

absl::StatusOr<Descriptor> Descriptor::Make(cudnnBackendDescriptorType_t type,
                                            absl::string_view name,
                                            const std::vector<Attribute>& attributes) {
  TY_ASSIGN_OR_RETURN(Descriptor made, Create(type, name));
  for (const Attribute& attribute : attributes) {
    TY_RETURN_IF_ERROR(made.Set(attribute));
  }
  TY_RETURN_IF_ERROR(made.Finalize());
  return made;
}

absl::Status Descriptor::Set(const Attribute& attribute) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(
      descriptor_, attribute.name_, attribute.type_, attribute.count_, attribute.bytes_.data());
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return StatusOf(status,
                  absl::StrCat("set attribute ", static_cast<int>(attribute.name_), " of ", name_));
}

absl::Status Descriptor::Finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(descriptor_);
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return StatusOf(status, absl::StrCat("finalize ", name_));
}

absl::Status Descriptor::GetRaw(cudnnBackendAttributeName_t attribute,
                                cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                void* values) const {
  const cudnnStatus_t status =
      cudnnBackendGetAttribute(descriptor_, attribute, type, requested, count, values);
  if (status == CUDNN_STATUS_SUCCESS) {
    return absl::OkStatus();
  }
  return StatusOf(status,
                  absl::StrCat("get attribute ", static_cast<int>(attribute), " of ", name_));
}

absl::StatusOr<std::string> Descriptor::GetText(cudnnBackendAttributeName_t attribute) const {
  TY_ASSIGN_OR_RETURN(const std::vector<char> text, GetAll<char>(attribute));
  // Some versions count the closing zero.
  return std::string(text.begin(), std::find(text.begin(), text.end(), '\0'));
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetDescriptors(
    cudnnBackendAttributeName_t attribute, cudnnBackendDescriptorType_t type,
    absl::string_view name, int64_t max) const {
  std::vector<Descriptor> made;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < max; ++i) {
    TY_ASSIGN_OR_RETURN(Descriptor one, Create(type, name));
    raw.push_back(one.get());
    made.push_back(std::move(one));
  }
  int64_t count = 0;
  TY_RETURN_IF_ERROR(GetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, max, &count, raw.data()));
  made.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, max)));
  return made;
}

}  // namespace trainyard::engine::cuda::dnn
