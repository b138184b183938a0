// Keeps the paths of specs within the folder of data sets.
#include "worker/data/dataset_options.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace trainyard::data {

bool StaysBelow(absl::string_view path) {
  if (path.empty() || absl::StartsWith(path, "/")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

}  // namespace trainyard::data
