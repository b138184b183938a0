// Plans the buffers of a program, which is a list of calls compiled from a step graph: it records
// which calls touch a buffer, and derives where the buffers lie in one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine {

using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

// The margin between buffers of a guarded plan, which is filled with kGuardByte.
inline constexpr int64_t kGuardBytes = 4 * kArenaAlignment;
inline constexpr uint8_t kGuardByte = 0x5a;

class BufferPlan {
 public:
  // Adds a buffer in the arena, which lives from the first call that touches it to the last.
  BufferId AddArena(int64_t bytes);
  // Adds a buffer whose memory belongs to somebody else. If `data` is null, each run sets it with
  // SetFixed.
  BufferId AddFixed(void* data);
  void SetFixed(BufferId buffer, void* data) { at(buffer).data = static_cast<std::byte*>(data); }
  bool is_arena(BufferId buffer) const { return at(buffer).lifetime >= 0; }

  // Notes that the call reads or writes these buffers. kNoBuffer among them is ignored.
  void Touch(int call, absl::Span<const BufferId> buffers);
  // Keeps the content of the buffer until the program ends.
  void Keep(BufferId buffer) { kept_.push_back(buffer); }

  // Lays out the arena, after the last Touch. If `is_guarded`, each buffer gets a margin after it,
  // by which a call is found that writes too far, or into memory that still belongs to another
  // buffer. If `larger`, the plan for more rows, has the same calls, its places are used for this
  // plan too: a smaller batch never needs more.
  void Plan(int calls, bool is_guarded, const BufferPlan* larger);
  void Bind(std::byte* arena);

  int64_t arena_bytes() const { return arena_.bytes; }
  // Returns the bytes of all buffers, as if none shared memory.
  int64_t unshared_bytes() const;
  bool is_guarded() const { return is_guarded_; }
  // Return the margins of the buffers whose lives begin with the call, and of those that live
  // during it.
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
    int lifetime = -1;  // -1 if it is not in the arena
  };
  Buffer& at(BufferId buffer) { return buffers_[static_cast<size_t>(buffer)]; }
  const Buffer& at(BufferId buffer) const { return buffers_[static_cast<size_t>(buffer)]; }
  bool FitsInto(const BufferPlan& larger) const;
  template <class Wanted>
  std::vector<std::byte*> Guards(const Wanted& wanted) const;

  std::vector<Buffer> buffers_;
  std::vector<Lifetime> lifetimes_;  // `first` is -1 if it is not used yet
  std::vector<BufferId> kept_;
  ArenaLayout arena_;
  std::byte* base_ = nullptr;
  bool is_guarded_ = false;
};

}  // namespace trainyard::engine
