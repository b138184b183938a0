// Memory of a step, known before it runs: offsets in an arena from lifetimes, and bytes by
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

// Bytes of an executable. What it holds in buffers is exact; `kernels` is what they cost beside.
struct MemoryPlan {
  int64_t parameters = 0;   // with running statistics
  int64_t optimizer = 0;    // slots, step count, moving averages
  int64_t gradients = 0;    // the reduction arena
  int64_t activations = 0;  // the arena of values that live within a step
  int64_t workspace = 0;    // repacked weights, scratch of the kernels
  // Code that a library generates, its primitives and pages, stacks of threads: by the number of
  // calls, from measurements.
  int64_t kernels = 0;
  // The program around the step fills these in: batches read ahead, and copies of the state while a
  // checkpoint is written.
  int64_t batches = 0;
  int64_t checkpoint = 0;
  // Activations if no two shared memory: what the planner saved.
  int64_t activations_unshared = 0;

  int64_t buffers() const { return parameters + optimizer + gradients + activations + workspace; }
  int64_t total() const { return buffers() + kernels + batches + checkpoint; }
  // The categories that are not zero, by name, in this order.
  std::vector<std::pair<absl::string_view, int64_t>> categories() const;
};

// RESOURCE_EXHAUSTED with the numbers where the plan needs more than `bytes`. `rows_that_fit`: the
// largest batch that would fit, 0 where none does.
absl::Status CheckFits(const MemoryPlan& plan, int64_t bytes, int64_t rows_that_fit);

// Something that must lie in the arena during calls [first, last].
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<int64_t> offsets;  // one a lifetime, multiples of kArenaAlignment
  int64_t bytes = 0;
};

// A cache line, and the widest vector.
inline constexpr int64_t kArenaAlignment = 64;
inline int64_t AlignUp(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Places the largest first, each at the smallest gap that holds it among those alive at the same
// time (Pisarchyk & Lee 2020, "greedy by size").
ArenaLayout PlanArena(absl::Span<const Lifetime> lifetimes);

// Lifetimes of a step graph's values, by storage (see SharedStorage): -1 for what lives elsewhere
// (input, labels, parameters, their gradients).
struct ValueLifetimes {
  std::vector<int> lifetime_of;  // by value; index into lifetimes
  std::vector<Lifetime> lifetimes;
};
ValueLifetimes ComputeLifetimes(const StepGraph& step, int64_t rows, int64_t element_bytes);

// True if a buffer can be used, is a file that other processes can map, or has addresses alone, as
// planning needs: it takes no memory, and whoever touches it crashes.
enum class Backing { kMemory, kFile, kAddresses };

// The bytes that all buffers of the process hold, on the host and on devices: plans are tested
// against them. An owner of buffers of another kind adds what they take, and gives it back.
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
  // The file of a buffer that is one, otherwise -1.
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
