// Opens cuDNN on a device, or for a description, and says what to do if that fails.
#include "worker/engine/backend/cuda/dnn/target.h"

#include <cuda_runtime_api.h>

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {
namespace {

absl::Status NoDevice(cudaError_t error) {
  const std::string what =
      absl::StrCat("CUDA error ", static_cast<int>(error), ": ", cudaGetErrorString(error));
  constexpr char kCpu[] = "or run on the CPU with the device type `cpu`";
  switch (error) {
    case cudaErrorInsufficientDriver:
      return absl::UnavailableError(absl::StrCat("no NVIDIA driver answers, or an old one (", what,
                                                 "): install a driver for CUDA ",
                                                 CUDART_VERSION / 1000, ", ", kCpu));
    case cudaErrorNoDevice:
      return absl::UnavailableError(absl::StrCat(
          "no GPU is visible (", what, "): check nvidia-smi and CUDA_VISIBLE_DEVICES, ", kCpu));
    default:
      return absl::UnavailableError(
          absl::StrCat("the GPU does not answer (", what, "): check nvidia-smi, ", kCpu));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OpenTarget>> OpenTarget::ForDevice() {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  int major = 0;
  int minor = 0;
  cudaDeviceProp properties = {};
  if (error == cudaSuccess) {
    error = cudaGetDeviceProperties(&properties, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  }
  if (error != cudaSuccess) {
    return NoDevice(error);
  }
  std::unique_ptr<OpenTarget> opened(new OpenTarget);
  TY_RETURN_IF_ERROR(StatusOf(cudnnCreate(&opened->target_.handle), "open cuDNN"));
  opened->target_.name = absl::StrCat(properties.name, " sm", major, minor);
  opened->target_.device_index = device;
  return opened;
}

absl::StatusOr<std::unique_ptr<OpenTarget>> OpenTarget::OpenAgain() const {
  return target_.has_device() ? ForDevice() : ForDescription(target_.description);
}

absl::StatusOr<std::unique_ptr<OpenTarget>> OpenTarget::ForDescription(const std::string& json) {
  const nlohmann::json parsed = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto member = [&](const char* name) {
    return parsed.is_object() && parsed.contains(name) ? parsed[name] : nlohmann::json();
  };
  const nlohmann::json name = member("deviceName");
  const nlohmann::json version = member("deviceVer");
  if (!name.is_string() || !version.is_number_integer()) {
    return absl::InvalidArgumentError(
        "a device's description is a JSON object with at least deviceName and deviceVer; "
        "trainyard-probe --describe writes one");
  }
  std::unique_ptr<OpenTarget> opened(new OpenTarget);
  absl::StatusOr<Descriptor> device =
      Descriptor::Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device description",
                       {{CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json}});
  if (!device.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuDNN does not take the device's description: ", device.status().message()));
  }
  opened->target_.device = *std::move(device);
  opened->target_.description = json;
  // cuDNN writes 9.0 as 900.
  opened->target_.name =
      absl::StrCat(name.get<std::string>(), " sm", version.get<int64_t>() / 10, " described");
  return opened;
}

OpenTarget::~OpenTarget() {
  if (target_.handle != nullptr) {
    cudnnDestroy(target_.handle);
  }
}

absl::StatusOr<std::string> DescribeDevice(cudnnHandle_t handle) {
  TY_ASSIGN_OR_RETURN(const Descriptor device,
                      Descriptor::Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device description",
                                       {{CUDNN_ATTR_DEVICEPROP_HANDLE, handle}}));
  return device.GetText(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
}

}  // namespace trainyard::engine::cuda::dnn
