// The spelling of a checkpoint's MANIFEST. Its types and ParseManifest are in checkpoint.h.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::checkpoint {

inline constexpr char kManifestName[] = "MANIFEST";

// A plain name inside the folder: no path, nothing hidden, not MANIFEST itself.
bool IsFileName(absl::string_view name);

// The one spelling; `files` ordered by name.
std::string EncodeManifest(const Manifest& manifest);

}  // namespace trainyard::checkpoint
