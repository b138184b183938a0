// Implements the ring of slots through which batches reach the device.
#include "worker/engine/backend/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

// The control lies at the beginning of a slot, and the begins of groups behind it.
constexpr int64_t kControlBytes = 256;
// A rate that follows its batch has a place of its own in host memory, since the batch may still be
// read there.
constexpr int64_t kRateOffset = kControlBytes - int64_t{sizeof(float)};
static_assert(sizeof(StepControl) <= kRateOffset);

// An empty span may have a null address, which memcpy must not see.
void CopyOnHost(std::byte* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

absl::StatusOr<Staging> Staging::Create(int64_t inputs_bytes, int64_t labels_bytes,
                                        int64_t groups_max, Backing backing) {
  Staging staging;
  staging.labels_offset_ =
      kControlBytes + AlignUpDevice((groups_max + 1) * int64_t{sizeof(int32_t)});
  staging.inputs_offset_ = staging.labels_offset_ + AlignUpDevice(labels_bytes);
  const int64_t bytes = staging.inputs_offset_ + AlignUpDevice(inputs_bytes);
  for (Slot& slot : staging.slots_) {
    TY_ASSIGN_OR_RETURN(slot.device, DeviceBuffer::Create(bytes, backing));
    if (backing == Backing::kAddresses) continue;
    TY_ASSIGN_OR_RETURN(slot.host, PinnedBuffer::Create(slot.device.bytes()));
    TY_ASSIGN_OR_RETURN(slot.copied, CreateEvent());
    TY_ASSIGN_OR_RETURN(slot.released, CreateEvent());
  }
  if (backing == Backing::kMemory) {
    TY_ASSIGN_OR_RETURN(staging.copies_, CreateStream());
  }
  return staging;
}

const int32_t* Staging::device_group_begins() const {
  return reinterpret_cast<const int32_t*>(slots_[current_].device.data() + kControlBytes);
}

int64_t Staging::device_bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.device.bytes();
  return bytes;
}

absl::StatusOr<Staging::Slot*> Staging::NextSlot(const Waiter& waiter) {
  current_ = (current_ + 1) % kSlots;
  is_updated_ = false;
  Slot* const slot = &slots_[current_];
  TY_RETURN_IF_ERROR(waiter.ForEvent(slot->released.get(), "waiting for an earlier step"));
  return slot;
}

absl::Status Staging::CopyAsync(void* to, const void* from, int64_t bytes, const Slot& slot,
                                cudaStream_t compute) {
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, copies_.get()),
      "copying a batch"));
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(slot.copied.get(), copies_.get()), "marking a batch"));
  return CudaStatus(cudaStreamWaitEvent(compute, slot.copied.get(), 0), "waiting for a batch");
}

absl::Status Staging::Send(const Sent& batch, StepControl control, const Waiter& waiter,
                           cudaStream_t compute) {
  const auto& [inputs, pixels, labels, group_begins] = batch;
  TY_ASSIGN_OR_RETURN(Slot * slot, NextSlot(waiter));
  batch_ = current_;
  std::byte* const device = slot->device.data();
  control.inputs = device + inputs_offset_;
  control.labels = reinterpret_cast<const int32_t*>(device + labels_offset_);
  const auto inputs_bytes = static_cast<int64_t>(inputs.size());
  const int64_t pixels_offset = inputs_offset_ + AlignUpDevice(inputs_bytes);
  if (!pixels.empty()) {
    control.stored.pixels = reinterpret_cast<const uint8_t*>(device + pixels_offset);
  }
  const size_t labels_bytes = labels.size() * sizeof(int32_t);
  const int64_t end = !pixels.empty()  ? pixels_offset + static_cast<int64_t>(pixels.size())
                      : inputs.empty() ? labels_offset_ + static_cast<int64_t>(labels_bytes)
                                       : inputs_offset_ + inputs_bytes;
  TY_CHECK(end <= slot->host.bytes());
  auto* const host = slot->host.as<std::byte>();
  std::memcpy(host, &control, sizeof control);
  TY_CHECK(kControlBytes + static_cast<int64_t>(group_begins.size() * sizeof(int32_t)) <=
           labels_offset_);
  std::transform(group_begins.begin(), group_begins.end(),
                 reinterpret_cast<int32_t*>(host + kControlBytes),
                 [](int64_t begin) { return static_cast<int32_t>(begin); });
  CopyOnHost(host + labels_offset_, labels.data(), labels_bytes);
  CopyOnHost(host + inputs_offset_, inputs.data(), inputs.size());
  CopyOnHost(host + pixels_offset, pixels.data(), pixels.size());
  return CopyAsync(device, host, end, *slot, compute);
}

absl::Status Staging::SendRate(float lr, const Waiter& waiter, cudaStream_t compute) {
  const Slot& before = slots_[current_];
  if (!is_updated_) {
    // Only an update reads the rate, and none has read this slot yet.
    auto* const rate = reinterpret_cast<float*>(before.host.as<std::byte>() + kRateOffset);
    *rate = lr;
    return CopyAsync(before.device.data() + offsetof(StepControl, lr), rate, sizeof lr, before,
                     compute);
  }
  TY_ASSIGN_OR_RETURN(Slot * slot, NextSlot(waiter));
  std::memcpy(slot->host.as<std::byte>(), before.host.as<std::byte>(),
              static_cast<size_t>(labels_offset_));
  slot->host.as<StepControl>()->lr = lr;
  return CopyAsync(slot->device.data(), slot->host.as<std::byte>(), labels_offset_, *slot, compute);
}

absl::Status Staging::Release(cudaStream_t compute) {
  // After the rate of a second update, the control leads to the batch of an earlier slot.
  for (const size_t slot : {current_, batch_}) {
    TY_RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(slots_[slot].released.get(), compute), "marking a step"));
    if (current_ == batch_) break;
  }
  return absl::OkStatus();
}

absl::Status Staging::ReleaseAfterUpdate(cudaStream_t compute) {
  is_updated_ = true;
  return Release(compute);
}

}  // namespace trainyard::engine::cuda
