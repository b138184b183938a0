// The memory that the ranks of one host share, and how they wait for each other in it. For this
// folder alone.
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

// Floats that a rank can publish at a time: 1 MiB, well inside the second-level caches' reach.
inline constexpr size_t kSlotElements = size_t{256} << 10;

// What one rank shows the others. On a cache line of its own: each rank writes only its own.
struct alignas(64) RankSlot {
  std::atomic<uint32_t> published = 0;  // steps that the rank has published; a futex
  std::atomic<uint32_t> waiters = 0;    // ranks asleep on `published`
  std::atomic<uint32_t> left = 0;       // 1: it will publish nothing more
  std::atomic<int32_t> pid = 0;         // not 0: attached
  // Of the step published last: what is called, and with how much. Ranks that disagree are told.
  std::atomic<uint64_t> fingerprints[2] = {0, 0};
};

// Floats that a sender can be ahead of its receiver, twice: 256 KiB.
inline constexpr size_t kChannelElements = size_t{64} << 10;

// The way from one rank to another. Counts chunks, and may wrap.
struct alignas(64) ChannelSlot {
  std::atomic<uint32_t> written = 0;  // a futex
  std::atomic<uint32_t> readers = 0;  // asleep on `written`
  // Of the chunks that are there: elements of the message from its first one on.
  std::atomic<uint64_t> elements_left[2] = {0, 0};
  // Of the reader: on a cache line of its own.
  alignas(64) std::atomic<uint32_t> read = 0;  // a futex
  std::atomic<uint32_t> writers = 0;           // asleep on `read`
};

// Memory that all ranks of a gang map.
class SharedSegment {
 public:
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(int world_size);
  // Where another process finds the segment; as long as the creator keeps it open.
  std::string Address() const;
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Attach(const std::string& address,
                                                               int world_size);
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankSlot& slot(int rank) const;
  // Two buffers a rank, used in turns: one may be read by slower ranks while the other is filled.
  float* buffer(int rank, uint32_t step) const;
  ChannelSlot& channel(int from, int to) const;
  // Two a channel, used in turns. Pages that nobody has written to take no memory.
  float* channel_buffer(int from, int to, uint32_t chunk) const;

 private:
  size_t channel_index(int from, int to) const;

  SharedSegment(std::unique_ptr<SharedMemory> memory, int world_size)
      : memory_(std::move(memory)), world_size_(world_size) {}

  const std::unique_ptr<SharedMemory> memory_;
  const int world_size_;
};

// Sleeps until `word` is no longer `seen`, or somebody wakes, or `timeout` has passed.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, absl::Duration timeout);
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace trainyard::parallel
