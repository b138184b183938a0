// Defines MANIFEST, which lists what a checkpoint consists of. It is JSON in one spelling only:
//   {"format": 1, "step": 600, "files": [{"name": ..., "size": ..., "hash": ...}]}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::checkpoint {

struct ManifestEntry {
  std::string name;
  int64_t size = 0;
  std::string hash;  // "xxh3-128:<32 hex digits>"
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestEntry> files;  // sorted by name
};

// Returns the only spelling. `files` must be sorted by name.
std::string EncodeManifest(const Manifest& manifest);
// Reads what EncodeManifest wrote. Returns NOT_FOUND, or DATA_LOSS (CORRUPT_FILE) for anything
// else.
absl::StatusOr<Manifest> ParseManifest(const std::string& path);

}  // namespace trainyard::checkpoint
