// Defines a step graph that was compiled for one number of rows: calls that enqueue kernels, over
// buffers in a planned arena.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/buffer_plan.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/rank_statistics.h"
#include "worker/engine/backend/row_groups.h"

namespace trainyard::engine::cuda {

// The parameters of calls when they are enqueued. Captured calls are told once.
struct Enqueue {
  cudaStream_t stream = nullptr;
  // If false, sums overwrite the reduction arena. If true, they are added to it.
  bool adds = false;
  // Only the loss of an evaluation counts them.
  bool counts_top5 = false;
  // For batch_norm. If `ranks` is not null, the ranks share its statistics, and nothing can be
  // captured.
  const RowGroups* groups = &RowGroups::AllRows();
  RankStatistics* ranks = nullptr;
};

struct Call {
  std::string name;  // "conv1 conv2d"
  std::string op;    // "conv2d"; "copy" for a call that belongs to no node
  std::function<absl::Status(const Enqueue&)> enqueue;
  double flops = 0;
  // After this call the reduction arena is final up to this element. 0 means no further than
  // before.
  int64_t ready = 0;
};

// The time of one call, from events on the stream.
struct CallTime {
  std::string name;
  std::string op;
  double seconds = 0;
  double flops = 0;
};

// The program. The class is not thread-safe. It must not move, since the closures of its calls hold
// a pointer to it.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // These build the program.
  BufferId AddArenaBuffer(int64_t bytes);
  BufferId AddFixedBuffer(void* data) { return buffers_.AddFixed(data); }
  void Emit(Call call, const std::vector<BufferId>& buffers);
  void SetReady(int64_t ready) {
    if (!calls_.empty()) calls_.back().ready = ready;
  }
  void Keep(BufferId buffer) { buffers_.Keep(buffer); }
  void Plan(bool is_guarded, const Program* larger);

  int64_t arena_bytes() const { return buffers_.arena_bytes(); }
  int64_t unshared_bytes() const { return buffers_.unshared_bytes(); }
  void Bind(std::byte* arena) { buffers_.Bind(arena); }
  template <class T>
  T* ptr(BufferId buffer) const {
    return buffers_.ptr<T>(buffer);
  }
  template <class T>
  T* ptr_or_null(BufferId buffer) const {
    return buffers_.ptr_or_null<T>(buffer);
  }
  // The place of a value: element (p, c) is at `offset` + p * stride + c of the buffer.
  struct Place {
    BufferId buffer = kNoBuffer;
    int64_t offset = 0;
    int64_t stride = 0;
    Type type = Type::kF32;
  };
  View At(const Place& place) const {
    if (place.buffer == kNoBuffer) return {};
    return {ptr<std::byte>(place.buffer) + place.offset * SizeOf(place.type), place.stride,
            place.type};
  }
  const std::vector<Call>& calls() const { return calls_; }

  // Enqueues the first `calls` calls; on_ready may be empty. A guarded program waits for each call,
  // and returns INTERNAL with the name of a call that wrote beyond a buffer.
  absl::Status Run(size_t calls, const Enqueue& enqueue,
                   const Executable::ReadyCallback& on_ready) const;
  // Runs all calls, and returns how long each took.
  absl::StatusOr<std::vector<CallTime>> Time(const Enqueue& enqueue) const;

  // The compiler sets these. The logits are as the loss reads them.
  BufferId logits = kNoBuffer;
  Type logits_type = Type::kF32;
  int64_t logits_stride = 0;
  BufferId input_gradient = kNoBuffer;  // floats, NCHW; kNoBuffer if it is not computed

 private:
  absl::Status FillGuards(int call, cudaStream_t stream) const;
  absl::Status CheckGuards(int call, cudaStream_t stream) const;

  BufferPlan buffers_;
  std::vector<Call> calls_;
};

}  // namespace trainyard::engine::cuda
