// Allocates memory of a bench on which every candidate for a graph can run, and finds in it what
// they write.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/engine/backend/cuda/dnn/bindings.h"
#include "worker/engine/backend/cuda/dnn/exactness.h"
#include "worker/engine/backend/cuda/dnn/graph.h"
#include "worker/engine/backend/cuda/tuning/agreement.h"
#include "worker/engine/backend/cuda/tuning/bench.h"

namespace trainyard::engine::cuda::dnn {

// The memory belongs to the bench. Parts of a tensor lie in one block, as in a step.
struct Room {
  Bindings bindings;
  std::map<int64_t, int64_t> bytes;  // of each tensor, by its id
  void* workspace = nullptr;
};

// Returns RESOURCE_EXHAUSTED if the device has not enough memory.
absl::StatusOr<Room> MakeRoom(const Graph& graph, int64_t workspace_bytes, Bench& bench);

// Returns the tensors that are written.
std::vector<Output> OutputsIn(const Room& room, const std::vector<WrittenSlot>& written);

}  // namespace trainyard::engine::cuda::dnn
