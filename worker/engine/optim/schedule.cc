// Computes the learning rate of each step.
#include "worker/engine/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainyard::engine {
namespace {

// Returns the share of the steps after the warm-up that is done, from 0 to 1.
double Progress(const Schedule& schedule, int64_t step) {
  const int64_t length = schedule.total_steps - schedule.warmup_steps;
  return length <= 0 ? 1
                     : std::min(1.0, static_cast<double>(step - schedule.warmup_steps) /
                                         static_cast<double>(length));
}

}  // namespace

double LinearScale(int64_t global_batch, int64_t base_batch) {
  return base_batch == 0 ? 1 : static_cast<double>(global_batch) / static_cast<double>(base_batch);
}

double LearningRate(const Schedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.base_lr * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      return schedule.base_lr;
    case Schedule::Kind::kStep: {
      double lr = schedule.base_lr;
      for (int64_t milestone : schedule.milestones) {
        lr *= step >= milestone ? schedule.gamma : 1;
      }
      return lr;
    }
    case Schedule::Kind::kCosine:
      return schedule.final_lr + (schedule.base_lr - schedule.final_lr) *
                                     (1 + std::cos(std::numbers::pi * Progress(schedule, step))) /
                                     2;
    case Schedule::Kind::kPolynomial:
      return schedule.final_lr + (schedule.base_lr - schedule.final_lr) *
                                     std::pow(1 - Progress(schedule, step), schedule.power);
  }
  return schedule.base_lr;
}

}  // namespace trainyard::engine
