#include "worker/parallel/shm/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::parallel {
namespace {

constexpr size_t kBuffers = 2;  // of a rank, and of a channel

// What lies where: slots of ranks and of channels, then buffers of ranks and of channels.
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

size_t SegmentBytes(int world_size) {
  return Offsets(static_cast<size_t>(world_size)).end;
}

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "futexes are 32-bit words");

}  // namespace

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(int world_size) {
  UniqueFd fd(memfd_create("trainyard-gang", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create", "shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(SegmentBytes(world_size))) != 0) {
    return ErrnoStatus(errno, "cannot size", "shared memory");
  }
  TY_ASSIGN_OR_RETURN(auto segment, Map(std::move(fd), world_size));
  for (int rank = 0; rank < world_size; ++rank) new (&segment->slot(rank)) RankSlot;
  for (int from = 0; from < world_size; ++from) {
    for (int to = 0; to < world_size; ++to) new (&segment->channel(from, to)) ChannelSlot;
  }
  return segment;
}

std::string SharedSegment::Address() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", fd_.get());
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Attach(const std::string& address,
                                                                     int world_size) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(address, O_RDWR));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", address);
  if (static_cast<size_t>(info.st_size) != SegmentBytes(world_size)) {
    return absl::FailedPreconditionError(absl::StrCat("'", address, "' has ", info.st_size,
                                                      " bytes; expected ", SegmentBytes(world_size),
                                                      " for ", world_size, " ranks"));
  }
  return Map(std::move(fd), world_size);
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Map(UniqueFd fd, int world_size) {
  const size_t bytes = SegmentBytes(world_size);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map", "shared memory");
  return std::unique_ptr<SharedSegment>(new SharedSegment(std::move(fd), base, bytes, world_size));
}

SharedSegment::~SharedSegment() {
  munmap(base_, bytes_);
}

RankSlot& SharedSegment::slot(int rank) const {
  return static_cast<RankSlot*>(base_)[rank];
}

float* SharedSegment::buffer(int rank, uint32_t step) const {
  auto* buffers = reinterpret_cast<float*>(static_cast<char*>(base_) +
                                           Offsets(static_cast<size_t>(world_size_)).buffers);
  return buffers + (static_cast<size_t>(rank) * kBuffers + step % kBuffers) * kSlotElements;
}

size_t SharedSegment::channel_index(int from, int to) const {
  return static_cast<size_t>(from) * static_cast<size_t>(world_size_) + static_cast<size_t>(to);
}

ChannelSlot& SharedSegment::channel(int from, int to) const {
  auto* channels = reinterpret_cast<ChannelSlot*>(
      static_cast<char*>(base_) + Offsets(static_cast<size_t>(world_size_)).channels);
  return channels[channel_index(from, to)];
}

float* SharedSegment::channel_buffer(int from, int to, uint32_t chunk) const {
  auto* buffers = reinterpret_cast<float*>(
      static_cast<char*>(base_) + Offsets(static_cast<size_t>(world_size_)).channel_buffers);
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
