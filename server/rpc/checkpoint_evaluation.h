// The evaluation that a checkpoint has in its state.json.
#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "server/runtime/blob_store.h"

namespace trainyard::rpc {

// Nothing where the weights were not evaluated, or where the text is of another trainer.
std::optional<core::CheckpointEvaluation> ParseEvaluation(absl::string_view state_json);

// The files must be sealed. Blocks on the disk.
std::optional<core::CheckpointEvaluation> ReadEvaluation(
    const runtime::BlobStore& blobs, const std::vector<core::CheckpointFile>& files);

}  // namespace trainyard::rpc
