// The memory that a spec's training needs on one device, known without training: what --plan
// prints.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::trainer {

enum class PlanFormat { kText, kJson };

// `spec_json`: JobSpec as in assignment.json. For rank 0, which hosts as many rows as any.
absl::StatusOr<std::string> ReportPlan(absl::string_view spec_json, absl::string_view backend,
                                       int threads, PlanFormat format);

}  // namespace trainyard::trainer
