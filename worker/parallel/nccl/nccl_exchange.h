// A GradientExchange between GPUs, over NCCL on a stream of its own: the training enqueues its
// backward pass and goes on, and each bucket's sum follows when the device gets there.
//
// One term a rank, all update all: one all_reduce a bucket, in NCCL's order, which is the same on
// all ranks. Otherwise (a tree over replicas, or sharded): the blocks travel to their owner, who
// adds them as the plan says; then the sums, or the parameters that came of them, travel to all.
//
// Nothing waits for the device but Finish, which has a deadline: behind it the host may wait for
// what it enqueued.
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
  // Sums keep the plan's order; else NCCL may take its own where each rank has one term.
  bool keeps_order = false;
  // Where backward and updates are enqueued.
  cudaStream_t compute = nullptr;
  // Enqueues sums[i] = left[i] + sums[i].
  std::function<absl::Status(const float* left, float* sums, int64_t count, cudaStream_t stream)>
      add_left;
};

// `device` carries gradients, and `host` ballots and agreements.
absl::StatusOr<std::unique_ptr<GradientExchange>> MakeNcclExchange(
    std::unique_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
    NcclExchangeOptions options);

}  // namespace trainyard::parallel
