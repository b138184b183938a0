// Defines a step graph that was compiled for one number of rows: calls that enqueue kernels, over
// buffers in a planned arena.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/call_list.h"
#include "worker/engine/backend/cuda/branch.h"
#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/rank_sums.h"
#include "worker/engine/backend/cuda/side_stream.h"

namespace trainyard::engine::cuda {

// The parameters of calls when they are enqueued. A captured call keeps those of its capture.
struct Enqueue {
  cudaStream_t stream = nullptr;
  // The tickets of launches on this stream; see norm.h.
  uint32_t* tickets = nullptr;
  // These were sent for this step, and lie on the device.
  const StepControl* control = nullptr;
  const int32_t* group_begins = nullptr;  // if there are several groups; see norm.h
  // The stream for branches, or null if all calls run on the one above, in their order.
  const SideStream* side = nullptr;
  // If false, sums overwrite the reduction arena. If true, they are added to it.
  bool adds = false;
  // Only the loss of an evaluation counts them.
  bool counts_top5 = false;
  // For batch_norm: the number of groups of rows. `ranks` is not null if the program was compiled
  // for statistics of all ranks. Then a rank without rows runs only the calls in which all ranks
  // take part.
  int64_t groups = 1;
  const RankSums* ranks = nullptr;
  bool has_rows = true;
};

// The kernels of a call are those that it launches if nothing is added to earlier sums, and the
// most that it launches for any number of groups. A plan of cuDNN or a product of cuBLASLt counts
// as one. The op is "copy" for a call that belongs to no node.
struct Call : CallWork {
  std::function<absl::Status(const Enqueue&)> enqueue;
  // After this call the reduction arena is final up to this element. 0 means no further than
  // before.
  int64_t ready = 0;
  // All ranks take part in it, also those without rows.
  bool is_of_all_ranks = false;
  // It sums over the ranks, and cannot be captured.
  bool is_sum_of_ranks = false;
  bool is_side = false;      // it is a part of a branch; see branch.h
  bool ends_branch = false;  // the main stream waits for the branch before it
};

// The time of one call, from events on the stream.
struct CallTime {
  std::string name;
  std::string op;
  double seconds = 0;
  double flops = 0;
};

class Program : public CallList<Call> {
 public:
  BufferId AddArenaBuffer(int64_t bytes);
  void Bind(std::byte* arena) { buffers_.Bind(arena); }
  // Says where a buffer of AddFixedBuffer(nullptr) lies from here on. Ignores kNoBuffer.
  void SetFixed(BufferId buffer, void* data) {
    if (buffer != kNoBuffer) buffers_.SetFixed(buffer, data);
  }
  // Appends a call. If it is_side, it may become part of a branch.
  void Emit(Call call, const Accesses& accesses);
  // Does so for one that may write all of the buffers.
  void Emit(Call call, const std::vector<BufferId>& buffers) {
    Emit(std::move(call), Accesses{.reads = {}, .writes = buffers});
  }
  // Lays out the arena; see CallList.
  void Plan(bool is_guarded, const Program* larger);

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

  // Notes that all ranks take part in the last call, which sums over them if `is_sum`.
  void SetOfAllRanks(bool is_sum) {
    calls_.back().is_of_all_ranks = true;
    calls_.back().is_sum_of_ranks = is_sum;
  }

  // Enqueues the calls from `begin` to `end`. The stream then also waits for their branches. A
  // guarded program waits for each call, and returns INTERNAL with the name of a call that wrote
  // beyond a buffer.
  absl::Status Run(size_t begin, size_t end, const Enqueue& enqueue) const;

  // Calls that follow each other. After the last of them the reduction arena is final up to
  // `ready`. A sum over the ranks is a segment of its own.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    int64_t ready = 0;
    bool is_sum_of_ranks = false;
  };
  // Divides the calls from `begin` to `end` at sums over the ranks, and where the arena becomes
  // final up to one of `ready_ends`, which increase, or after each call that makes more of it final
  // if there are none.
  std::vector<Segment> Segments(size_t begin, size_t end,
                                absl::Span<const int64_t> ready_ends) const;
  std::vector<CallWork> Work() const;
  // Runs all calls one after the other, and returns how long each took.
  absl::StatusOr<std::vector<CallTime>> Time(const Enqueue& enqueue) const;

  // The compiler sets these. The logits are as the loss reads them.
  BufferId logits = kNoBuffer;
  Type logits_type = Type::kF32;
  int64_t logits_stride = 0;
  BufferId input_gradient = kNoBuffer;  // floats, NCHW; kNoBuffer if it is not computed
  std::vector<Fallback> fallbacks;
  // The values at the boundaries of a stage, which lie elsewhere; kNoBuffer if there are none.
  struct BoundaryBuffers {
    BufferId inputs = kNoBuffer;
    BufferId outputs = kNoBuffer;
    BufferId input_gradients = kNoBuffer;
    BufferId output_gradients = kNoBuffer;
  };
  BoundaryBuffers boundary;
  size_t forward_calls = 0;  // the number of calls of the forward half

 private:
  // Closes the branch, which the next call must not run beside.
  void EndBranch();
  absl::Status RunCall(size_t i, const Enqueue& enqueue) const;
  absl::Status RunCalls(size_t begin, size_t end, const Enqueue& enqueue, bool& is_forked) const;
  absl::Status FillGuards(int call, cudaStream_t stream) const;
  absl::Status CheckGuards(int call, cudaStream_t stream) const;

  Branch branch_;             // of the calls so far
  size_t branch_begin_ = 0;   // its first call
  bool ends_branch_ = false;  // the next call comes after a branch
};

}  // namespace trainyard::engine::cuda
