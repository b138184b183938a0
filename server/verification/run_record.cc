// Writes devices out.
#include "server/verification/run_record.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::verification {

std::string DevicesText(const std::vector<std::string>& types) {
  std::map<std::string, int> counts;
  for (const std::string& type : types) ++counts[type];
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& count) {
    absl::StrAppend(out, count.second, " x ", count.first);
  });
}

}  // namespace trainyard::verification
