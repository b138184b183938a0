// Accepts every name that stays in the folder, and that file systems and messages can hold.
#include "common/base/checkpoint_file.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "common/base/strings.h"

namespace trainyard {
namespace {

constexpr size_t kPartBytesMax = 255;
constexpr int kPartsMax = 16;

bool IsPart(absl::string_view part) {
  const bool is_shown = !part.empty() && (part.front() != '.' || part == ".metadata");
  return is_shown && part.size() <= kPartBytesMax;
}

// Terminals obey control characters.
bool IsControl(char c) {
  return (c >= 0 && c < ' ') || c == 127;
}

}  // namespace

bool IsCheckpointFileName(absl::string_view name) {
  if (name.size() > kFileNameBytesMax || name == kManifestName || !IsUtf8(name)) return false;
  if (std::any_of(name.begin(), name.end(), IsControl)) return false;
  int parts = 0;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (!IsPart(part) || ++parts > kPartsMax) return false;
  }
  return true;
}

}  // namespace trainyard
