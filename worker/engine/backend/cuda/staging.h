// Sends batches to the device, each with the control of its step. They are copied to pinned memory,
// and from there by a stream of their own while the device still computes the step before.
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
  // Sends a batch with `control`, which receives its addresses, as one copy into the next slot.
  // Waits if all slots are still in use. Work that is enqueued on `compute` after this call finds
  // the batch there.
  absl::Status Send(const Sent& batch, StepControl control, const Waiter& waiter,
                    cudaStream_t compute);
  // Gives what was sent last a learning rate. If an update has used it already, and may still read
  // its rate, the control is copied into the next slot; the batch stays where it is.
  absl::Status SendRate(float lr, const Waiter& waiter, cudaStream_t compute);
  // Notes that the work on `compute` so far is the last that reads what was sent.
  absl::Status Release(cudaStream_t compute);
  // Does so for work that ends with an update.
  absl::Status ReleaseAfterUpdate(cudaStream_t compute);

  // There is one slot for the step that runs, one for the step that waits, and one that is being
  // filled.
  static constexpr size_t kSlots = 3;
  // Returns the slot of what was sent last, and where its control and its begins of groups lie.
  size_t slot() const { return current_; }
  const StepControl* device_control() const { return slots_[current_].device.as<StepControl>(); }
  const int32_t* device_group_begins() const;
  int64_t device_bytes() const;

 private:
  struct Slot {
    PinnedBuffer host;    // control, begins of groups, labels, inputs
    DeviceBuffer device;  // the same
    Event copied;
    Event released;
  };
  // Waits until the device is done with the next slot.
  absl::StatusOr<Slot*> NextSlot(const Waiter& waiter);
  // Copies bytes of the slot to the device. Work on `compute` comes after that.
  absl::Status CopyAsync(void* to, const void* from, int64_t bytes, const Slot& slot,
                         cudaStream_t compute);

  std::array<Slot, kSlots> slots_;
  size_t current_ = 0;
  size_t batch_ = 0;         // the slot of the last batch
  bool is_updated_ = false;  // an update uses what was sent last
  int64_t labels_offset_ = 0;
  int64_t inputs_offset_ = 0;
  Stream copies_;
};

}  // namespace trainyard::engine::cuda
