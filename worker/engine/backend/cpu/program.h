// Defines a step graph that was compiled for one number of rows: calls in order, over buffers in a
// planned arena.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dnnl.hpp"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/call_list.h"
#include "worker/engine/backend/rank_statistics.h"
#include "worker/engine/backend/row_groups.h"

namespace trainyard::engine::cpu {

// The inputs of a run that change from run to run, and its results.
struct RunState {
  const int32_t* labels = nullptr;
  float gradient_scale = 0;  // weight / labels
  RandomPosition position;   // for dropout
  // For a stage, [rows, elements of the boundary value]: the memory for its output, and the
  // gradient of that output.
  float* stage_output = nullptr;
  const float* stage_output_gradient = nullptr;
  // For batch_norm. If ranks is not null, the ranks share its statistics.
  const RowGroups* groups = &RowGroups::AllRows();
  RankStatistics* ranks = nullptr;
  // If false, gradients overwrite the reduction arena. If true, they are added to it.
  bool accumulate = false;
  // Training does not need top5, which takes one more look at every logit.
  bool counts_top5 = false;
  double loss = 0;  // the mean over the labels
  int64_t correct = 0;
  int64_t top5 = 0;
  // The error that ended the run before its last call.
  absl::Status status = absl::OkStatus();
};

struct Call {
  std::string name;  // "conv1 conv2d+relu", for people
  std::string op;    // "conv2d"; "reorder" or "copy" for calls that change the layout of a value
  std::function<void(RunState&)> run;
  double flops = 0;
  // After this call, the reduction arena is final up to this element. 0 means no further than
  // before.
  int64_t ready = 0;
};

class Program : public CallList<Call> {
 public:
  // These build the program.
  BufferId AddArenaBuffer(int64_t bytes) { return buffers_.AddArena(bytes); }
  // Adds the buffer of the batch's inputs, whose address comes with each run.
  BufferId AddInputBuffer();
  // Returns memory at so many bytes of a buffer, wherever the buffer will lie.
  dnnl::memory Bound(const dnnl::engine& engine, const dnnl::memory::desc& desc, BufferId buffer,
                     int64_t offset = 0);

  void Bind(std::byte* arena);

  // Runs calls [first, calls), or up to one that leaves an error in the state. Each call's time on
  // this thread's CPU clock is added to `seconds`, if it is given.
  void Run(const float* inputs, size_t calls, RunState& state,
           const Executable::ReadyCallback& on_ready, std::vector<double>* seconds = nullptr,
           size_t first = 0);

  int64_t stage_input_block = 1;  // set by the compiler

  // The compiler sets these.
  int64_t stage_output_block = 1;
  size_t forward_calls = 0;            // the calls after these are the backward half
  std::vector<size_t> packed_weights;  // the numbers of those that the calls read
  BufferId logits = -1;
  BufferId input_gradient = -1;                           // plain; -1 if it is not computed
  std::vector<std::pair<BufferId, BufferId>> statistics;  // mean, biased variance: [groups, C]

 private:
  void FillGuards(int call);
  void CheckGuards(int call) const;

  struct Binding {
    dnnl::memory memory;
    BufferId buffer;
    int64_t offset;
  };

  std::byte* bound_ = nullptr;
  std::vector<BufferId> inputs_;
  std::vector<Binding> bindings_;
};

}  // namespace trainyard::engine::cpu
