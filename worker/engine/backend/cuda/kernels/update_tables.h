// Defines the tables and the memory on which an update works. The host fills them in, and all
// launches of the update read them.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"

namespace trainyard::engine::cuda {

// Updates, and the sums over parameters, are cut into chunks of this many elements of one
// parameter.
inline constexpr int64_t kUpdateChunk = 4096;

struct UpdateSegment {
  int64_t offset = 0;
  int64_t count = 0;
  // True if the parameter has no decay and no layer-wise ratio, as a bias or a norm's parameter,
  // unless the spec says otherwise.
  bool is_excluded = false;
  int32_t first_chunk = 0;
  int32_t chunks = 0;
  // The packed copy to which it is written, as an index into UpdateTables::packed, or -1 if there
  // is none.
  int32_t packed = -1;
};
struct UpdateChunk {
  int32_t segment = 0;
  int32_t count = 0;
  int64_t offset = 0;
};
// A running statistic: elements [offset, offset + count) of the statistics.
struct RunningSegment {
  int64_t offset = 0;
  int64_t count = 0;
  float momentum = 0.1F;
};

// The tables of an update, which all lie in device memory.
struct UpdateTables {
  const UpdateSegment* segments = nullptr;
  int64_t segment_count = 0;
  const UpdateChunk* chunks = nullptr;
  int64_t chunk_count = 0;
  const PackedWeight* packed = nullptr;
  const RunningSegment* running = nullptr;
  int64_t running_count = 0;
};

struct UpdateMemory {
  float* parameters = nullptr;
  float* gradients = nullptr;  // [gradient_elements]; they are cleared
  int64_t gradient_elements = 0;
  // A slot of an element lies at its offset. The next slot of the same element is slot_stride
  // behind it.
  float* slots = nullptr;
  int64_t slot_stride = 0;
  float* step_count = nullptr;  // null if the rule counts none
  float* averages = nullptr;    // null if there are none
  float* running = nullptr;     // running statistics [statistic_elements]
  float* statistics = nullptr;  // their sums of the step, which are cleared
  int64_t statistic_elements = 0;
  float* loss = nullptr;  // sums of the step, which are cleared
  float* correct = nullptr;
  // If null, the scale is 1, and values that are not finite are reported but applied.
  LossScale* loss_scale = nullptr;
  // Its not_finite is also set if the loss is not finite.
  StepResults results;
  const StepControl* control = nullptr;
  void* workspace = nullptr;  // UpdateWorkspace bytes, zero before the first update
};

}  // namespace trainyard::engine::cuda
