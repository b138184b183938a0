// Plans the memory of a step before it runs: offsets in an arena from lifetimes, and bytes by
// category.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/shared_memory.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// The bytes of an executable. The bytes in buffers are exact; `kernels` is an estimate of what else
// they cost.
struct MemoryPlan {
  int64_t parameters = 0;   // with running statistics
  int64_t optimizer = 0;    // slots, step count, moving averages
  int64_t gradients = 0;    // the reduction arena
  int64_t activations = 0;  // the arena of values that live within a step
  int64_t workspace = 0;    // repacked weights and scratch of the kernels
  // Code that a library generates, its primitives and pages, and stacks of threads. It is estimated
  // by the number of calls, from measurements.
  int64_t kernels = 0;
  // The program around the step fills these in: batches read ahead, and copies of the state while a
  // checkpoint is written.
  int64_t batches = 0;
  int64_t checkpoint = 0;
  // The activations as if no two shared memory, which shows what the planner saved.
  int64_t activations_unshared = 0;

  int64_t buffers() const { return parameters + optimizer + gradients + activations + workspace; }
  int64_t total() const { return buffers() + kernels + batches + checkpoint; }
  // Returns the categories that are not zero, by name, in this order.
  std::vector<std::pair<absl::string_view, int64_t>> categories() const;
};

// Returns RESOURCE_EXHAUSTED with the numbers if the plan needs more than `bytes`. `rows_that_fit`
// is the largest batch that would fit, or 0 if none does.
absl::Status CheckFits(const MemoryPlan& plan, int64_t bytes, int64_t rows_that_fit);

// Something that must lie in the arena during calls [first, last].
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<int64_t> offsets;  // one for each lifetime; multiples of kArenaAlignment
  int64_t bytes = 0;
};

// This is a cache line, and the widest vector.
inline constexpr int64_t kArenaAlignment = 64;
inline int64_t AlignUp(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Places the largest first, each at the smallest gap that holds it among those alive at the same
// time (Pisarchyk & Lee 2020, "greedy by size").
ArenaLayout PlanArena(absl::Span<const Lifetime> lifetimes);

// The lifetimes of a step graph's values, by storage (see SharedStorage). A value has -1 if it lies
// elsewhere (input, labels, parameters, their gradients).
struct ValueLifetimes {
  std::vector<int> lifetime_of;  // by value; index into lifetimes
  std::vector<Lifetime> lifetimes;
};
ValueLifetimes ComputeLifetimes(const StepGraph& step, int64_t rows, int64_t element_bytes);

// The memory behind a buffer: memory that can be used, a file that other processes can map, or only
// addresses, as planning needs them, which take no memory and crash when they are touched.
enum class Backing { kMemory, kFile, kAddresses };

// Returns the bytes that all buffers of the process hold, on the host and on devices. Plans are
// tested against them. An owner of buffers of another kind adds what they take, and subtracts it at
// the end.
int64_t LiveBufferBytes();
void AddLiveBufferBytes(int64_t bytes);

// Aligned, zeroed memory.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes, Backing backing = Backing::kMemory);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Returns the file of a buffer that is one, otherwise -1.
  int fd() const { return file_ == nullptr ? -1 : file_->fd(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Backing backing_ = Backing::kMemory;
  std::unique_ptr<SharedMemory> file_;
};

}  // namespace trainyard::engine
