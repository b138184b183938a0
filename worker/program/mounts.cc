// Finds the nodes of GPUs. The driver is asked through its files, since this program links nothing
// of NVIDIA's.
#include "worker/program/mounts.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace trainyard::program {
namespace {

// Podman gives itself no more than this where a system has no more process numbers, and cannot give
// a container more than it has.
constexpr rlim_t kProcessesMax = 32768;
constexpr int64_t kInformationBytesMax = int64_t{1} << 16;

// Returns the value of a line such as "GPU UUID: \t GPU-...".
std::string ValueOf(const std::string& text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, key)) return std::string(absl::StripAsciiWhitespace(line));
  }
  return "";
}

// Returns a limit as podman takes it, for which -1 means that there is none.
std::string LimitText(rlim_t value) {
  return value == RLIM_INFINITY ? "-1" : absl::StrCat(value);
}

}  // namespace

std::vector<std::string> OwnLimits() {
  std::vector<std::string> limits;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limits.push_back(
        absl::StrCat("nofile=", LimitText(limit.rlim_cur), ":", LimitText(limit.rlim_max)));
  }
  if (getrlimit(RLIMIT_NPROC, &limit) == 0) {
    limit.rlim_max = std::min(limit.rlim_max, kProcessesMax);
    limit.rlim_cur = std::min(limit.rlim_cur, kProcessesMax);
    limits.push_back(
        absl::StrCat("nproc=", LimitText(limit.rlim_cur), ":", LimitText(limit.rlim_max)));
  }
  return limits;
}

absl::StatusOr<std::vector<std::string>> GpuNodes(const std::vector<std::string>& uuids,
                                                  const std::string& folder) {
  std::map<std::string, std::string> nodes;
  const auto buses = ListDirectory(folder);
  for (const std::string& bus : buses.value_or(std::vector<std::string>{})) {
    const auto text =
        ReadFileRange(JoinPath(JoinPath(folder, bus), "information"), 0, kInformationBytesMax);
    if (!text.ok()) continue;
    const std::string minor = ValueOf(*text, "Device Minor:");
    if (!minor.empty()) nodes[ValueOf(*text, "GPU UUID:")] = absl::StrCat("/dev/nvidia", minor);
  }
  std::vector<std::string> found;
  for (const std::string& uuid : uuids) {
    const auto node = nodes.find(uuid);
    if (node == nodes.end()) {
      return absl::NotFoundError(absl::StrCat("'", folder, "' does not tell of GPU ", uuid));
    }
    found.push_back(node->second);
  }
  return found;
}

}  // namespace trainyard::program
