// Writes the records of plans as JSON and as a table.
#include "tests/bench/gpu/plan_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace trainyard::engine::bench {
namespace {

std::string VerdictOf(const cuda::PlanRecord& plan) {
  if (!plan.is_verified) return "not compared";
  const size_t refused = plan.refused.size();
  if (plan.candidates < 2) return "nothing to compare with";
  return refused == 0 ? absl::StrFormat("agree to %.2f of the bound", plan.difference)
                      : absl::StrCat(refused, " refused");
}

}  // namespace

nlohmann::json ToJson(const std::vector<cuda::PlanRecord>& plans) {
  nlohmann::json list = nlohmann::json::array();
  for (const cuda::PlanRecord& plan : plans) {
    list.push_back({{"problem", plan.problem},
                    {"engine", plan.engine},
                    {"candidates", plan.candidates},
                    {"microseconds", plan.microseconds},
                    {"workspace_bytes", plan.workspace_bytes},
                    {"from_cache", plan.from_cache},
                    {"verified", plan.is_verified},
                    {"difference", plan.difference},
                    {"refused", plan.refused}});
  }
  return list;
}

std::string RenderPlans(const std::vector<cuda::PlanRecord>& plans) {
  if (plans.empty()) return "";
  std::string text =
      "| plan | engine | of | us | workspace MiB | candidates |\n|---|---|---|---|---|---|\n";
  for (const cuda::PlanRecord& plan : plans) {
    absl::StrAppendFormat(&text, "| %s | %s%s | %d | %.1f | %.1f | %s |\n", plan.problem,
                          plan.engine, plan.from_cache ? ", from the cache" : "", plan.candidates,
                          plan.microseconds, static_cast<double>(plan.workspace_bytes) / (1 << 20),
                          VerdictOf(plan));
  }
  return text;
}

std::string PlansLine(const std::vector<cuda::PlanRecord>& plans) {
  int64_t compared = 0, candidates = 0, alone = 0, refused = 0;
  for (const cuda::PlanRecord& plan : plans) {
    if (!plan.is_verified) continue;
    ++(plan.candidates < 2 ? alone : compared);
    candidates += plan.candidates < 2 ? 0 : plan.candidates;
    refused += static_cast<int64_t>(plan.refused.size());
  }
  return absl::StrCat("plans: ", plans.size(), "; ", candidates, " candidates of ", compared,
                      " were compared, ", refused, " refused; ", alone,
                      " had nothing to be compared with");
}

absl::Status CheckVerified(const std::vector<cuda::PlanRecord>& plans) {
  std::vector<std::string> refused;
  for (const cuda::PlanRecord& plan : plans) {
    for (const std::string& reason : plan.refused) {
      refused.push_back(absl::StrCat(plan.problem, ": ", reason));
    }
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      refused.size(),
      " candidates compute something else than others: ", absl::StrJoin(refused, "; ")));
}

}  // namespace trainyard::engine::bench
