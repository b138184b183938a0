// Defines what the compiled programs of all backends share: a list of calls over buffers in a
// planned arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/engine/backend/buffer_plan.h"

namespace trainyard::engine {

// A list of calls, in order. A Call has a string `op`, by which calls are counted, and a number
// `ready`: after the call, the reduction arena is final up to this element. 0 means no further than
// before.
//
// The class is not thread-safe. It must not move, since the functions of its calls hold a pointer
// to it.
template <class Call>
class CallList {
 public:
  CallList() = default;
  CallList(const CallList&) = delete;
  CallList& operator=(const CallList&) = delete;

  BufferId AddFixedBuffer(void* data) { return buffers_.AddFixed(data); }
  // Appends the call. It reads or writes `buffers`, which therefore lie in the arena at that time;
  // kNoBuffer among them is ignored.
  void Emit(Call call, const std::vector<BufferId>& buffers) {
    buffers_.Touch(static_cast<int>(calls_.size()), buffers);
    calls_.push_back(std::move(call));
  }
  // Notes that after the last call the reduction arena is final up to this element.
  void SetReady(int64_t ready) {
    if (!calls_.empty()) calls_.back().ready = ready;
  }
  // Notes that the buffer must still be there when the program ends.
  void Keep(BufferId buffer) { buffers_.Keep(buffer); }
  // Lays out the arena (BufferPlan::Plan), after the last Emit. With `is_guarded`, each run checks
  // after every call that nothing was written beyond a live buffer. `larger` may be null.
  void Plan(bool is_guarded, const CallList* larger) {
    buffers_.Plan(static_cast<int>(calls_.size()), is_guarded,
                  larger == nullptr ? nullptr : &larger->buffers_);
  }

  int64_t arena_bytes() const { return buffers_.arena_bytes(); }
  // Returns the bytes that all buffers would take if none shared memory.
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
