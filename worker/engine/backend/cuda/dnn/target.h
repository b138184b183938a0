// Opens the device, or the description of one, for which plans are made.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/engines.h"

namespace trainyard::engine::cuda::dnn {

// A Target that closes what it opened.
class OpenTarget {
 public:
  // Opens the current device. Returns UNAVAILABLE, with what to do, if there is no GPU or no
  // driver.
  static absl::StatusOr<std::unique_ptr<OpenTarget>> ForDevice();
  // Opens a description. Returns INVALID_ARGUMENT if the text describes no device.
  static absl::StatusOr<std::unique_ptr<OpenTarget>> ForDescription(const std::string& json);
  // Opens the same device or description once more, for another thread.
  absl::StatusOr<std::unique_ptr<OpenTarget>> OpenAgain() const;
  ~OpenTarget();
  OpenTarget(const OpenTarget&) = delete;
  OpenTarget& operator=(const OpenTarget&) = delete;

  const Target& get() const { return target_; }

 private:
  OpenTarget() = default;
  Target target_;
};

// Describes the device behind a handle in cuDNN's JSON.
absl::StatusOr<std::string> DescribeDevice(cudnnHandle_t handle);

}  // namespace trainyard::engine::cuda::dnn
