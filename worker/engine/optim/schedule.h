// Implements learning-rate schedules as pure functions of the step.
#pragma once

#include <cstdint>
#include <vector>

namespace trainyard::engine {

struct Schedule {
  enum class Kind { kConstant, kStep, kCosine, kPolynomial };
  Kind kind = Kind::kConstant;
  double base_lr = 0.1;
  int64_t total_steps = 1;
  // Linear warm-up (Goyal et al. 2017, section 2.2): lr grows from base_lr / warmup_steps at step 0
  // to base_lr at step warmup_steps - 1. 0 means none.
  int64_t warmup_steps = 0;
  // kStep: the rate is multiplied by gamma at each of these steps, ascending.
  std::vector<int64_t> milestones = {};
  double gamma = 0.1;
  // kCosine: from base_lr after the warm-up to final_lr at total_steps (Loshchilov & Hutter 2017,
  // eq. 5).
  double final_lr = 0;
  // kPolynomial: from base_lr after the warm-up to final_lr at total_steps, as the power of what is
  // left (You et al. 2017, section 5.1: power 2).
  double power = 1;
};

// The linear scaling rule (Goyal et al. 2017, section 2.1): returns the factor of a rate that was
// chosen for `base_batch` samples a step, or 1 if base_batch is 0.
double LinearScale(int64_t global_batch, int64_t base_batch);

// Returns the learning rate of 0-based `step`.
double LearningRate(const Schedule& schedule, int64_t step);

}  // namespace trainyard::engine
