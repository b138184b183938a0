// Spells a checkpoint's MANIFEST. Its types and ParseManifest are in checkpoint.h.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::checkpoint {

inline constexpr char kManifestName[] = "MANIFEST";

// Returns true for a plain name inside the folder: no path, not hidden, and not MANIFEST itself.
bool IsFileName(absl::string_view name);

// Returns the only spelling. `files` must be sorted by name.
std::string EncodeManifest(const Manifest& manifest);

}  // namespace trainyard::checkpoint
