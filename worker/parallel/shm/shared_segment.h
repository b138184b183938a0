// Defines the memory that the ranks of one host share, and the futexes by which they wait in it.
// Only this folder uses it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/shared_memory.h"

namespace trainyard::parallel {

// The floats that a rank can publish at a time: 1 MiB, which second-level caches can hold.
inline constexpr size_t kSlotElements = size_t{256} << 10;

// The state that one rank shows the others. It has a cache line of its own, and only its rank
// writes it.
struct alignas(64) RankSlot {
  std::atomic<uint32_t> published = 0;  // steps that the rank has published; a futex
  std::atomic<uint32_t> waiters = 0;    // ranks asleep on `published`
  std::atomic<uint32_t> left = 0;       // 1: it will publish nothing more
  std::atomic<int32_t> pid = 0;         // not 0: attached
  // The collective and size of the step that was published last, so that ranks that disagree are
  // detected.
  std::atomic<uint64_t> fingerprints[2] = {0, 0};
};

// The number of floats by which a sender can be ahead of its receiver, twice: 256 KiB.
inline constexpr size_t kChannelElements = size_t{64} << 10;

// The channel from one rank to another. Its counts are of chunks, and may wrap. What the sender
// counts and what the receiver counts have a cache line each.
struct ChannelSlot {
  struct alignas(64) Sent {
    std::atomic<uint32_t> written = 0;  // a futex
    std::atomic<uint32_t> readers = 0;  // asleep on `written`
    // For each chunk that is there: the number of elements of its message from its own first one
    // on.
    std::atomic<uint64_t> elements_left[2] = {0, 0};
  };
  struct alignas(64) Taken {
    std::atomic<uint32_t> read = 0;     // a futex
    std::atomic<uint32_t> writers = 0;  // asleep on `read`
  };
  Sent sent;
  Taken taken;
};

// Memory that all ranks of a gang map.
class SharedSegment {
 public:
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(int world_size);
  // Returns the path under which another process finds the segment, as long as the creator keeps it
  // open.
  std::string Address() const;
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Attach(const std::string& address,
                                                               int world_size);
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankSlot& slot(int rank) const;
  // Each rank has two buffers, used in turns: slower ranks may read one while the other is filled.
  float* buffer(int rank, uint32_t step) const;
  ChannelSlot& channel(int from, int to) const;
  // Each channel has two, used in turns. Pages that nobody has written to take no memory.
  float* channel_buffer(int from, int to, uint32_t chunk) const;

 private:
  size_t channel_index(int from, int to) const;

  SharedSegment(std::unique_ptr<SharedMemory> memory, int world_size)
      : memory_(std::move(memory)), world_size_(world_size) {}

  const std::unique_ptr<SharedMemory> memory_;
  const int world_size_;
};

// Sleeps until `word` is no longer `seen`, or somebody wakes the thread, or `timeout` has passed.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, absl::Duration timeout);
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace trainyard::parallel
