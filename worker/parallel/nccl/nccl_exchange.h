// Implements GradientExchange between GPUs, over NCCL on a stream of its own. The training enqueues
// its backward pass and continues, and each bucket's sum follows when the device gets there.
//
// If each rank has one term and all ranks update everything, a bucket takes one all_reduce, in
// NCCL's order, which is the same on all ranks. Otherwise (with a tree over replicas, or sharded)
// the blocks travel to their owner, who adds them as the plan says. Then the sums, or the
// parameters that were updated with them, travel to all.
//
// Only Finish waits for the device, with a deadline. Afterwards the host may wait for what it
// enqueued.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/parallel/block_exchange.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/nccl/nccl_communicator.h"

namespace trainyard::parallel {

struct NcclExchangeOptions {
  // Its spans lie in device memory.
  WireExchangeOptions memory;
  // True if sums keep the plan's order. Otherwise NCCL may use its own if each rank has one term.
  bool keeps_order = false;
  // True if no step may begin before the sums of the one before are there. Then lag() is 0.
  bool finishes_steps = false;
  // The stream on which backward and updates are enqueued.
  cudaStream_t compute = nullptr;
  // Enqueues sums[i] = left[i] + sums[i].
  std::function<absl::Status(const float* left, float* sums, int64_t count, cudaStream_t stream)>
      add_left;
  // Enqueue conversions of `count` values to bfloat16 and back. If they are given, gradients that
  // take one all_reduce travel and add up in bfloat16. The other way keeps the order of the plan,
  // and does without them.
  std::function<absl::Status(const float* from, void* to, int64_t count, cudaStream_t stream)>
      to_bf16 = nullptr;
  std::function<absl::Status(const void* from, float* to, int64_t count, cudaStream_t stream)>
      from_bf16 = nullptr;
};

// `device` carries gradients, and `host` ballots and agreements. `device` may also be used for
// other sums of the step, in the order in which all ranks enqueue them; the exchange sets its
// timeout.
absl::StatusOr<std::unique_ptr<GradientExchange>> MakeNcclExchange(
    std::shared_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
    NcclExchangeOptions options);

}  // namespace trainyard::parallel
