// Lays out the shared segment, and implements its futexes.
#include "worker/parallel/shm/shared_segment.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::parallel {
namespace {

constexpr size_t kBuffers = 2;  // for each rank, and for each channel

// The offsets of the parts: slots of ranks and of channels, then buffers of ranks and of channels.
struct Offsets {
  explicit Offsets(size_t ranks)
      : channels(ranks * sizeof(RankSlot)),
        buffers(channels + ranks * ranks * sizeof(ChannelSlot)),
        channel_buffers(buffers + ranks * kBuffers * kSlotElements * sizeof(float)),
        end(channel_buffers + ranks * ranks * kBuffers * kChannelElements * sizeof(float)) {}

  size_t channels;
  size_t buffers;
  size_t channel_buffers;
  size_t end;
};

int64_t SegmentBytes(int world_size) {
  return static_cast<int64_t>(Offsets(static_cast<size_t>(world_size)).end);
}

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "futexes are 32-bit words");

}  // namespace

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(int world_size) {
  TY_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(SegmentBytes(world_size)));
  std::unique_ptr<SharedSegment> segment(new SharedSegment(std::move(memory), world_size));
  for (int rank = 0; rank < world_size; ++rank) new (&segment->slot(rank)) RankSlot;
  for (int from = 0; from < world_size; ++from) {
    for (int to = 0; to < world_size; ++to) new (&segment->channel(from, to)) ChannelSlot;
  }
  return segment;
}

std::string SharedSegment::Address() const {
  return SharedMemory::AddressOf(getpid(), memory_->fd());
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Attach(const std::string& address,
                                                                     int world_size) {
  auto memory = SharedMemory::Attach(address, SegmentBytes(world_size));
  if (absl::IsFailedPrecondition(memory.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(memory.status().message(), " for ", world_size, " ranks"));
  }
  TY_RETURN_IF_ERROR(memory.status());
  return std::unique_ptr<SharedSegment>(new SharedSegment(*std::move(memory), world_size));
}

RankSlot& SharedSegment::slot(int rank) const {
  return reinterpret_cast<RankSlot*>(memory_->data())[rank];
}

float* SharedSegment::buffer(int rank, uint32_t step) const {
  auto* buffers =
      reinterpret_cast<float*>(memory_->data() + Offsets(static_cast<size_t>(world_size_)).buffers);
  return buffers + (static_cast<size_t>(rank) * kBuffers + step % kBuffers) * kSlotElements;
}

size_t SharedSegment::channel_index(int from, int to) const {
  return static_cast<size_t>(from) * static_cast<size_t>(world_size_) + static_cast<size_t>(to);
}

ChannelSlot& SharedSegment::channel(int from, int to) const {
  auto* channels = reinterpret_cast<ChannelSlot*>(
      memory_->data() + Offsets(static_cast<size_t>(world_size_)).channels);
  return channels[channel_index(from, to)];
}

float* SharedSegment::channel_buffer(int from, int to, uint32_t chunk) const {
  auto* buffers = reinterpret_cast<float*>(
      memory_->data() + Offsets(static_cast<size_t>(world_size_)).channel_buffers);
  return buffers + (channel_index(from, to) * kBuffers + chunk % kBuffers) * kChannelElements;
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace trainyard::parallel
