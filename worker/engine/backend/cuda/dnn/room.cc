// Allocates each tensor once, with all its parts.
#include "worker/engine/backend/cuda/dnn/room.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {

absl::StatusOr<Room> MakeRoom(const Graph& graph, int64_t workspace_bytes, Bench& bench) {
  Room room;
  for (const Slot& slot : graph.slots) {
    int64_t& bytes = room.bytes[slot.whole];
    bytes = std::max(bytes, slot.offset + slot.bytes);
  }
  for (const auto& [id, bytes] : room.bytes) {
    TY_ASSIGN_OR_RETURN(void* block, bench.Allocate(bytes));
    room.bindings.emplace_back(id, block);
  }
  TY_ASSIGN_OR_RETURN(room.workspace, bench.Allocate(workspace_bytes));
  return room;
}

std::vector<Output> OutputsIn(const Room& room, const std::vector<WrittenSlot>& written) {
  std::vector<Output> outputs;
  for (const WrittenSlot& slot : written) {
    outputs.push_back({BoundTo(slot.id, room.bindings), room.bytes.at(slot.id), slot.exactness});
  }
  return outputs;
}

}  // namespace trainyard::engine::cuda::dnn
