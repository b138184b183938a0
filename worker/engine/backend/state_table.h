// Contains what all backends share at the port: where state tensors lie, and the checks of a batch.
//
// Parameters lie flat at the offsets of their gradients in the reduction arena, so do each of the
// optimizer's slots (one slot after the other, then the step count) and the moving averages;
// running statistics lie at the offsets of the batch statistics. So an update is one pass over flat
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/step_graph.h"
#include "worker/engine/optim/optimizer.h"

namespace trainyard::engine {

// One parameter in flat memory.
struct Segment {
  int64_t offset = 0;
  int64_t count = 0;
  bool is_bias_or_norm = false;  // of one dimension
};

struct StateTable {
  std::vector<StateTensor> tensors;
  // The offset of each tensor in the flat memory of its kind.
  std::vector<int64_t> offsets;
  std::vector<Segment> segments;  // ascending
  // The elements of the slots and the step count, and of the averages.
  int64_t slot_elements = 0;
  int64_t average_elements = 0;
  int64_t step_offset = -1;  // of the step count among the slots; -1 if none is kept
};

StateTable BuildStateTable(const Graph& model, const ReductionLayout& layout,
                           const OptimizerSpec& optimizer);

// Returns INVALID_ARGUMENT for an index or a size that does not match the table.
absl::Status CheckStateAccess(const StateTable& table, size_t index, size_t count);

// Returns the number of rows, by the labels.
int64_t RowsOf(const Graph& model, const Batch& batch);

// Returns INVALID_ARGUMENT for rows outside [1, max_rows], inputs or labels of another size, labels
// outside the classes, tokens outside the vocabulary, images beyond those that are stored, floats
// and stored rows in one batch, or groups that do not match the rows. `stored_images` is the number
// of stored images. It is unset before StoreImages, and stored rows then give FAILED_PRECONDITION.
absl::Status CheckBatch(const Graph& model, const Batch& batch, int64_t max_rows,
                        std::optional<int64_t> stored_images = std::nullopt);
absl::Status CheckInputs(const Graph& model, absl::Span<const float> inputs, int64_t rows,
                         int64_t max_rows);
// Checks the batch of Forward, Backward and EvaluateStage: only a first stage has inputs, and only
// the last one labels.
absl::Status CheckStageBatch(const Graph& model, const Batch& batch, int64_t rows,
                             int64_t max_rows);
// Returns INVALID_ARGUMENT for a slot beyond CompileOptions::microbatch_slots.
absl::Status CheckSlot(const CompileOptions& options, int slot);
// Returns FAILED_PRECONDITION unless the slot keeps a Forward of `rows`. It keeps `forward_rows`,
// or nothing if that is 0.
absl::Status CheckForwardDone(int64_t forward_rows, int64_t rows, int slot);
// Checks the arguments of StoreImages.
absl::Status CheckImageStore(const Graph& model, const ImageStore& images, int64_t bytes_max);
// Returns INVALID_ARGUMENT if a batch_norm would see a single value per channel, or for groups (of
// a batch of this many rows) that these options do not allow.
absl::Status CheckStatistics(const StepGraph& step, const CompileOptions& options,
                             absl::Span<const int64_t> groups, int64_t rows);
// Returns FAILED_PRECONDITION if the optimizer keeps no moving averages.
absl::Status CheckHasAverages(const StateTable& table);
absl::Status CheckCompileOptions(const CompileOptions& options);

}  // namespace trainyard::engine
