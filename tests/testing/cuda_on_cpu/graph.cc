// Draws the order in which the nodes of a launched graph run.
#include "tests/testing/cuda_on_cpu/graph.h"

#include <utility>

namespace trainyard::cuda_on_cpu {

GraphRun::GraphRun(std::shared_ptr<const GraphPlan> plan)
    : plan_(std::move(plan)), left_(plan_->nodes.size()) {
  for (size_t i = 0; i < plan_->nodes.size(); ++i) {
    missing_.push_back(plan_->nodes[i].after_count);
    if (missing_.back() == 0) {
      ready_.push_back(i);
    }
  }
}

const std::function<void()>& GraphRun::Draw(Random& random) {
  static const auto& nothing = *new std::function<void()>;
  if (left_ == 0) {
    return nothing;
  }
  std::swap(ready_[random.Below(ready_.size())], ready_.back());
  running_ = ready_.back();
  ready_.pop_back();
  return plan_->nodes[running_].work;
}

bool GraphRun::Ran() {
  if (left_ == 0) {
    return true;
  }
  for (const size_t later : plan_->nodes[running_].before) {
    if (--missing_[later] == 0) {
      ready_.push_back(later);
    }
  }
  return --left_ == 0;
}

}  // namespace trainyard::cuda_on_cpu
