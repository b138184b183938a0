// Repairs the checksums of a tar archive. Few mutations keep them right, and behind a wrong one
// nothing else of a header is read.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::fuzz {

// Returns the archive with a right checksum in each header, as far as the sizes of the members lead
// from one to the next.
std::string WithChecksums(absl::string_view archive);

}  // namespace trainyard::fuzz
