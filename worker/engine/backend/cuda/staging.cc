// Implements the ring of slots through which batches reach the device.
#include "worker/engine/backend/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

// The control lies at the beginning of a slot in host memory, and the begins of groups behind it.
constexpr int64_t kControlBytes = 256;
static_assert(sizeof(StepControl) <= kControlBytes);

// An empty span may have a null address, which memcpy must not see.
void CopyOnHost(std::byte* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

absl::Status CopyAsync(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                    "copying a batch");
}

}  // namespace

absl::StatusOr<Staging> Staging::Create(int64_t inputs_bytes, int64_t labels_bytes,
                                        int64_t groups_max, Backing backing) {
  Staging staging;
  staging.labels_offset_ = AlignUpDevice(inputs_bytes);
  const int64_t bytes = staging.labels_offset_ + AlignUpDevice(labels_bytes);
  const int64_t control_bytes =
      kControlBytes + AlignUpDevice((groups_max + 1) * int64_t{sizeof(int32_t)});
  TY_ASSIGN_OR_RETURN(staging.control_, DeviceBuffer::Create(control_bytes, backing));
  for (Slot& slot : staging.slots_) {
    TY_ASSIGN_OR_RETURN(slot.device, DeviceBuffer::Create(bytes, backing));
    if (backing == Backing::kAddresses) continue;
    TY_ASSIGN_OR_RETURN(slot.host, PinnedBuffer::Create(control_bytes + bytes));
    TY_ASSIGN_OR_RETURN(slot.copied, CreateEvent());
    TY_ASSIGN_OR_RETURN(slot.released, CreateEvent());
  }
  if (backing == Backing::kMemory) {
    TY_ASSIGN_OR_RETURN(staging.copies_, CreateStream());
  }
  return staging;
}

const int32_t* Staging::device_group_begins() const {
  return reinterpret_cast<const int32_t*>(control_.data() + kControlBytes);
}

int64_t Staging::device_bytes() const {
  int64_t bytes = control_.bytes();
  for (const Slot& slot : slots_) bytes += slot.device.bytes();
  return bytes;
}

absl::StatusOr<Staging::Slot*> Staging::NextSlot(const Waiter& waiter) {
  Slot* const slot = &slots_[next_];
  next_ = (next_ + 1) % kSlots;
  TY_RETURN_IF_ERROR(waiter.ForEvent(slot->released.get(), "waiting for an earlier step"));
  return slot;
}

absl::Status Staging::Send(const Sent& batch, StepControl control, const Waiter& waiter,
                           cudaStream_t compute) {
  const auto& [inputs, pixels, labels, group_begins] = batch;
  TY_ASSIGN_OR_RETURN(Slot * slot, NextSlot(waiter));
  current_ = slot;
  std::byte* const device = slot->device.data();
  control.inputs = device;
  control.labels = reinterpret_cast<const int32_t*>(device + labels_offset_);
  const size_t pixels_offset =
      static_cast<size_t>(AlignUpDevice(static_cast<int64_t>(inputs.size())));
  const size_t sent = pixels.empty() ? inputs.size() : pixels_offset + pixels.size();
  TY_CHECK(static_cast<int64_t>(sent) <= labels_offset_);
  if (!pixels.empty()) {
    control.stored.pixels = reinterpret_cast<const uint8_t*>(device + pixels_offset);
  }
  auto* const host = slot->host.as<std::byte>();
  std::byte* const host_inputs = host + control_.bytes();
  const size_t labels_bytes = labels.size() * sizeof(int32_t);
  std::memcpy(host, &control, sizeof control);
  TY_CHECK(kControlBytes + static_cast<int64_t>(group_begins.size() * sizeof(int32_t)) <=
           control_.bytes());
  std::transform(group_begins.begin(), group_begins.end(),
                 reinterpret_cast<int32_t*>(host + kControlBytes),
                 [](int64_t begin) { return static_cast<int32_t>(begin); });
  CopyOnHost(host_inputs, inputs.data(), inputs.size());
  CopyOnHost(host_inputs + pixels_offset, pixels.data(), pixels.size());
  CopyOnHost(host_inputs + labels_offset_, labels.data(), labels_bytes);

  TY_RETURN_IF_ERROR(CopyAsync(device, host_inputs, sent, copies_.get()));
  TY_RETURN_IF_ERROR(CopyAsync(device + labels_offset_, host_inputs + labels_offset_, labels_bytes,
                               copies_.get()));
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(slot->copied.get(), copies_.get()), "marking a batch"));
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaStreamWaitEvent(compute, slot->copied.get(), 0), "waiting for a batch"));
  const size_t control_bytes =
      group_begins.empty() ? sizeof control : kControlBytes + group_begins.size() * sizeof(int32_t);
  return CopyAsync(control_.data(), host, control_bytes, compute);
}

absl::Status Staging::SendRate(float lr, const Waiter& waiter, cudaStream_t compute) {
  TY_ASSIGN_OR_RETURN(Slot * slot, NextSlot(waiter));
  auto* const host = slot->host.as<float>();
  *host = lr;
  TY_RETURN_IF_ERROR(
      CopyAsync(control_.data() + offsetof(StepControl, lr), host, sizeof lr, compute));
  return CudaStatus(cudaEventRecord(slot->released.get(), compute), "marking a rate");
}

absl::Status Staging::Release(cudaStream_t compute) {
  return CudaStatus(cudaEventRecord(current_->released.get(), compute), "marking a step");
}

}  // namespace trainyard::engine::cuda
