// Lists the data sets, and finds one by the name that a spec gives.
#include "common/datasets.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_split.h"

namespace trainyard::datasets {

absl::Span<const Facts> All() {
  static constexpr Facts kAll[] = {kCifar10, kCifar100, kFashionMnist,    kGlyphs,
                                   kImages,  kMnist,    kTinyShakespeare, kTokens};
  return kAll;
}

const Facts* Find(absl::string_view name) {
  for (const Facts& facts : All()) {
    if (facts.name == name) return &facts;
  }
  return nullptr;
}

bool StaysBelow(absl::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

}  // namespace trainyard::datasets
