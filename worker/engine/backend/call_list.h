// Calls in order over buffers in a planned arena: what the compiled programs of all backends share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/engine/backend/buffer_plan.h"

namespace trainyard::engine {

// A Call has a string `op`, for counting, and a number `ready`: after the call the reduction arena
// is final up to there; 0 means no further than before.
//
// Not thread-safe. It must not move, since the functions of its calls hold a pointer to it.
template <class Call>
class CallList {
 public:
  CallList() = default;
  CallList(const CallList&) = delete;
  CallList& operator=(const CallList&) = delete;

  BufferId AddFixedBuffer(void* data) { return buffers_.AddFixed(data); }
  // Appends the call. It reads or writes `buffers`, which so must lie in the arena then; kNoBuffer
  // among them means nothing.
  void Emit(Call call, const std::vector<BufferId>& buffers) {
    buffers_.Touch(static_cast<int>(calls_.size()), buffers);
    calls_.push_back(std::move(call));
  }
  // Says that the reduction arena is final up to here after the last call.
  void SetReady(int64_t ready) {
    if (!calls_.empty()) calls_.back().ready = ready;
  }
  // The buffer must still be there when the program ends.
  void Keep(BufferId buffer) { buffers_.Keep(buffer); }
  // Lays out the arena (BufferPlan::Plan); after the last Emit. With `is_guarded`, each run checks
  // after every call that nothing was written beyond a live buffer. `larger` may be null.
  void Plan(bool is_guarded, const CallList* larger) {
    buffers_.Plan(static_cast<int>(calls_.size()), is_guarded,
                  larger == nullptr ? nullptr : &larger->buffers_);
  }

  int64_t arena_bytes() const { return buffers_.arena_bytes(); }
  // The bytes of all buffers, if none shared memory.
  int64_t unshared_bytes() const { return buffers_.unshared_bytes(); }
  template <class T>
  T* ptr(BufferId buffer) const {
    return buffers_.ptr<T>(buffer);
  }
  template <class T>
  T* ptr_or_null(BufferId buffer) const {
    return buffers_.ptr_or_null<T>(buffer);
  }

  const std::vector<Call>& calls() const { return calls_; }
  std::map<std::string, int64_t> CallsByOp() const {
    std::map<std::string, int64_t> count;
    for (const Call& call : calls_) ++count[call.op];
    return count;
  }

 protected:
  ~CallList() = default;

  BufferPlan buffers_;
  std::vector<Call> calls_;
};

}  // namespace trainyard::engine
