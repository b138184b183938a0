// Implements the full policy: one pass, and the record that it leaves for explanations.
#include "server/core/scheduling/policy.h"

#include <memory>
#include <utility>

#include "server/core/scheduling/explain.h"
#include "server/core/scheduling/pass.h"

namespace trainyard::core {
namespace {

class FullPolicy : public Policy {
 public:
  explicit FullPolicy(const PolicyOptions& options) : options_(options) {}

  Plan MakePlan(const PassInput& input) const override {
    auto state = std::make_unique<PassState>(input, options_);
    Plan plan = RunPass(input, *state);
    plan.record = MakeRecord(input, std::move(state), plan.front);
    return plan;
  }

 private:
  const PolicyOptions options_;
};

}  // namespace

std::unique_ptr<const Policy> MakePolicy(const PolicyOptions& options) {
  return std::make_unique<FullPolicy>(options);
}

}  // namespace trainyard::core
