// Lists the runtimes in the order in which they are taken.
#include "common/base/container_runtime.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

constexpr char kPodman[] = "podman";
constexpr struct {
  const char* runtime;
  const char* program;
} kRuntimes[] = {{kPodman, "podman"},
                 {"apptainer", "apptainer"},
                 {"charliecloud", "ch-run"},
                 {"enroot", "enroot"}};

}  // namespace

ContainerRuntime FindContainerRuntime(bool runs_as_owners,
                                      const std::function<std::string(const std::string&)>& find) {
  for (const auto& [runtime, program] : kRuntimes) {
    if (runs_as_owners && absl::string_view(runtime) == kPodman) continue;
    std::string path = find(program);
    if (!path.empty()) return {runtime, std::move(path)};
  }
  return {};
}

std::string FindSystemProgram(absl::string_view name, absl::string_view root) {
  for (const char* folder : {"/usr/local/bin", "/usr/bin", "/bin", "/opt/bin", "/usr/sbin"}) {
    std::string path = absl::StrCat(root, folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

}  // namespace trainyard
