// Accepts every name that stays in the folder and that a file system can hold.
#include "common/base/checkpoint_file.h"

#include <algorithm>

namespace trainyard {

bool IsCheckpointFileName(absl::string_view name) {
  constexpr size_t kBytesMax = 255;
  return !name.empty() && name.front() != '.' && name.size() <= kBytesMax &&
         name != kManifestName &&
         std::none_of(name.begin(), name.end(), [](char c) { return c == '/' || c == '\0'; });
}

}  // namespace trainyard
