// The buffers of a program, a list of calls compiled from a step graph: which calls touch them, and
// so where they lie in one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine {

using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

// Between buffers of a guarded plan, filled with kGuardByte.
inline constexpr int64_t kGuardBytes = 4 * kArenaAlignment;
inline constexpr uint8_t kGuardByte = 0x5a;

class BufferPlan {
 public:
  // A buffer in the arena, alive from the first call that touches it to the last.
  BufferId AddArena(int64_t bytes);
  // One whose memory is somebody else's; null: it comes with each run, by SetFixed.
  BufferId AddFixed(void* data);
  void SetFixed(BufferId buffer, void* data) { at(buffer).data = static_cast<std::byte*>(data); }
  bool is_arena(BufferId buffer) const { return at(buffer).lifetime >= 0; }

  // The call reads or writes these; kNoBuffer among them means nothing.
  void Touch(int call, absl::Span<const BufferId> buffers);
  // Must still be there when the program ends.
  void Keep(BufferId buffer) { kept_.push_back(buffer); }

  // Lays out the arena; after the last Touch. With `is_guarded`, each buffer gets a margin behind
  // it, by which a call is found that writes too far, or into memory that is still another's.
  // Where `larger`, the plan for more rows, has the same calls, its places do for this one too: a
  // smaller batch never needs more.
  void Plan(int calls, bool is_guarded, const BufferPlan* larger);
  void Bind(std::byte* arena);

  int64_t arena_bytes() const { return arena_.bytes; }
  // The bytes of all buffers, if none shared memory.
  int64_t unshared_bytes() const;
  bool is_guarded() const { return is_guarded_; }
  // Margins of the buffers that come alive with the call, and of those that are alive during it.
  std::vector<std::byte*> NewGuards(int call) const;
  std::vector<std::byte*> LiveGuards(int call) const;

  template <class T>
  T* ptr(BufferId buffer) const {
    return reinterpret_cast<T*>(at(buffer).data);
  }
  template <class T>
  T* ptr_or_null(BufferId buffer) const {
    return buffer == kNoBuffer ? nullptr : ptr<T>(buffer);
  }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    int lifetime = -1;  // -1: not in the arena
  };
  Buffer& at(BufferId buffer) { return buffers_[static_cast<size_t>(buffer)]; }
  const Buffer& at(BufferId buffer) const { return buffers_[static_cast<size_t>(buffer)]; }
  bool FitsInto(const BufferPlan& larger) const;
  template <class Wanted>
  std::vector<std::byte*> Guards(const Wanted& wanted) const;

  std::vector<Buffer> buffers_;
  std::vector<Lifetime> lifetimes_;  // first -1: not used yet
  std::vector<BufferId> kept_;
  ArenaLayout arena_;
  std::byte* base_ = nullptr;
  bool is_guarded_ = false;
};

}  // namespace trainyard::engine
