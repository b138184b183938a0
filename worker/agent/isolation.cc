// Chooses levels of isolation from what is installed.
#include "worker/agent/isolation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/container_runtime.h"
#include "common/base/isolation.h"

namespace trainyard::agent {
namespace {

using run_dir::Isolation;
using run_dir::IsolationLevel;

absl::Status Unavailable(const char* level, const char* missing) {
  return error::IsolationUnavailable(
      absl::StrCat("this worker cannot give isolation: ", level, ", because ", missing));
}

}  // namespace

IsolationOffer FindIsolation(bool has_cgroups, bool runs_as_owners,
                             const std::function<std::string(const std::string&)>& find) {
  IsolationOffer offer;
  offer.has_cgroups = has_cgroups;
  offer.sandbox = find("bwrap");
  ContainerRuntime container = FindContainerRuntime(runs_as_owners, find);
  offer.container_runtime = std::move(container.name);
  offer.container_program = std::move(container.program);
  return offer;
}

std::map<std::string, std::string> IsolationLabels(const IsolationOffer& offer) {
  std::map<std::string, std::string> labels;
  if (offer.has_cgroups) labels[kCgroupLabel] = kIsolationYes;
  if (!offer.sandbox.empty()) labels[kSandboxLabel] = kIsolationYes;
  if (!offer.container_program.empty()) labels[kContainerLabel] = kIsolationYes;
  return labels;
}

absl::StatusOr<Isolation> ChooseIsolation(const IsolationOffer& offer, IsolationLevel asked,
                                          bool has_image) {
  Isolation isolation;
  isolation.level = has_image ? std::max(asked, IsolationLevel::kContainer) : asked;
  if (isolation.level == IsolationLevel::kUnknown) isolation.level = IsolationLevel::kProcess;
  if (isolation.level == IsolationLevel::kProcess && offer.has_cgroups) {
    isolation.level = IsolationLevel::kCgroup;
  }
  switch (isolation.level) {
    case IsolationLevel::kUnknown:
    case IsolationLevel::kProcess:
      break;
    case IsolationLevel::kCgroup:
      if (!offer.has_cgroups) return Unavailable("cgroup", "no control group was delegated to it");
      break;
    case IsolationLevel::kSandbox:
      if (offer.sandbox.empty()) return Unavailable("sandbox", "bubblewrap (bwrap) is missing");
      isolation.runtime = "bubblewrap";
      isolation.program = offer.sandbox;
      break;
    case IsolationLevel::kContainer:
      if (offer.container_program.empty()) {
        return Unavailable("container",
                           "none of podman, apptainer, charliecloud and enroot can be used here");
      }
      isolation.runtime = offer.container_runtime;
      isolation.program = offer.container_program;
      break;
  }
  return isolation;
}

}  // namespace trainyard::agent
