// Sends batches to the device. They are copied to pinned memory, and from there by a stream of
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
#include "worker/engine/backend/cuda/runtime/waiter.h"

namespace trainyard::engine::cuda {

class Staging {
 public:
  // Makes slots for inputs with their pixels, and labels, of at most this many bytes, and for this
  // many groups of rows.
  static absl::StatusOr<Staging> Create(int64_t inputs_bytes, int64_t labels_bytes,
                                        int64_t groups_max, Backing backing);

  // A batch as it is sent.
  struct Sent {
    absl::Span<const std::byte> inputs = {};
    // The pixels of rows that bring their own, which the control then names; otherwise empty.
    absl::Span<const uint8_t> pixels = {};
    absl::Span<const int32_t> labels = {};
    absl::Span<const int64_t> group_begins = {};  // as RowGroups::begins()
  };
  // Sends a batch. `control` receives its addresses. It lies at device_control(), and the begins of
  // groups at device_group_begins(), when work that is enqueued on `compute` after this call runs.
  // Waits if all slots are still in use.
  absl::Status Send(const Sent& batch, StepControl control, const Waiter& waiter,
                    cudaStream_t compute);
  // Sends only the learning rate.
  absl::Status SendRate(float lr, const Waiter& waiter, cudaStream_t compute);
  // Notes that the work on `compute` so far is the last that reads the batch.
  absl::Status Release(cudaStream_t compute);

  const StepControl* device_control() const { return control_.as<StepControl>(); }
  const int32_t* device_group_begins() const;
  int64_t device_bytes() const;

 private:
  // There is one slot for the step that runs, one for the step that waits, and one that is being
  // filled.
  static constexpr size_t kSlots = 3;
  struct Slot {
    PinnedBuffer host;    // control with the groups, inputs, labels
    DeviceBuffer device;  // inputs, labels
    Event copied;
    Event released;
  };
  // Waits until the device is done with the next slot.
  absl::StatusOr<Slot*> NextSlot(const Waiter& waiter);

  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
  Slot* current_ = nullptr;
  int64_t labels_offset_ = 0;
  DeviceBuffer control_;  // with the begins of groups behind it
  Stream copies_;
};

}  // namespace trainyard::engine::cuda
