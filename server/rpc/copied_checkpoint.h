// Reads what another server has written into a bucket. Nothing in it is trusted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::rpc {

// A place that ends with checkpoints/JOB or checkpoints/JOB/STEP.
struct CopyPlace {
  std::string bucket;
  std::string prefix;  // of the folder of that server: empty, or ends with a slash
  JobId job;
  std::optional<int64_t> step;  // unset for the newest one
};
// Returns INVALID_ARGUMENT for all other texts.
absl::StatusOr<CopyPlace> ParseCopyPlace(absl::string_view place);

// A copy whose manifest has been read.
struct CopiedFiles {
  v1::CopiedCheckpoint manifest;
  std::vector<core::CheckpointFile> files;
  std::map<std::string, std::string> digests;  // the 64 hex digits of each file by its name
  int64_t bytes = 0;
};
// Reads a manifest. `place` is for messages. Returns COPY_TOO_NEW for an unknown format, and
// DATA_LOSS (CORRUPT_FILE) for a text that is none or that contradicts itself.
absl::StatusOr<CopiedFiles> ReadCopy(const std::string& text, const std::string& place);

// Makes the request that imports its job, as `trainyard import` would. The same manifest and
// project give the same request id.
v1::ImportJobRequest ImportOfCopy(const v1::CopiedCheckpoint& manifest, const std::string& text,
                                  const std::string& project);

}  // namespace trainyard::rpc
