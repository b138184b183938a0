// Batches on their way to the device: copied into pinned memory, and from there by a stream of
// their own while the device still computes the step before.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {

class Staging {
 public:
  // For inputs, with their pixels, and labels of at most so many bytes.
  static absl::StatusOr<Staging> Create(int64_t inputs_bytes, int64_t labels_bytes,
                                        Backing backing);

  // Sends a batch: `control` gets its addresses, and lies at device_control() when what is enqueued
  // on `compute` after this call runs. Waits where all slots are still in use. `pixels`: of rows
  // that bring their own, which the control then names; else empty.
  absl::Status Send(absl::Span<const std::byte> inputs, absl::Span<const uint8_t> pixels,
                    absl::Span<const int32_t> labels, StepControl control, cudaStream_t compute);
  // The learning rate alone.
  absl::Status SendRate(float lr, cudaStream_t compute);
  // What `compute` was told until now is the last that reads the batch.
  absl::Status Release(cudaStream_t compute);

  const StepControl* device_control() const { return control_.as<StepControl>(); }
  int64_t device_bytes() const;

 private:
  // The step that runs, the one that waits, and the one that is being filled.
  static constexpr size_t kSlots = 3;
  struct Slot {
    PinnedBuffer host;    // control, inputs, labels
    DeviceBuffer device;  // inputs, labels
    Event copied;
    Event released;
  };
  // Waits until the device is done with the next slot.
  absl::StatusOr<Slot*> NextSlot();

  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
  Slot* current_ = nullptr;
  int64_t labels_offset_ = 0;
  DeviceBuffer control_;
  Stream copies_;
};

}  // namespace trainyard::engine::cuda
