// Reads the evaluation of a checkpoint from its state.json.
#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "server/runtime/blob_store.h"

namespace trainyard::rpc {

// Returns nothing if the weights were not evaluated, or if an unknown trainer wrote the text.
std::optional<core::CheckpointEvaluation> ParseEvaluation(absl::string_view state_json);

// Reads the evaluation from the checkpoint's files, which must be sealed. It blocks on the disk.
std::optional<core::CheckpointEvaluation> ReadEvaluation(
    const runtime::BlobStore& blobs, const std::vector<core::CheckpointFile>& files);

}  // namespace trainyard::rpc
