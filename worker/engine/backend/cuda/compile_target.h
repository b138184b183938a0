// Describes for what a program is compiled, and on which memory of the executable it works.
#pragma once

#include <cstdint>

#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/dnn/planner.h"
#include "worker/engine/backend/cuda/fusions.h"
#include "worker/engine/backend/cuda/kernels/loss.h"
#include "worker/engine/backend/cuda/tuning/effort.h"
#include "worker/engine/backend/state_memory.h"

namespace trainyard::engine::cuda {

// Device memory of the executable, at fixed addresses.
struct StepMemory : StateMemory {
  LossScale* loss_scale = nullptr;  // null if the loss is not scaled
  LossTotals* totals = nullptr;     // of the last loss
  void* loss_workspace = nullptr;
};

struct CompileTarget {
  int64_t rows = 1;
  bool is_training = false;  // true if loss and correct labels are added to the sums of the step
  Type type = Type::kF32;    // of activations
  bool tf32 = false;
  bool is_guarded = false;
  // True if batch norm takes its statistics over the rows of all ranks.
  bool merges_ranks = false;
  // True if the halves of a step run apart, with those of other microbatches between them. Then
  // the backward half adds the batch statistics to the sums, which the forward half must not touch.
  bool is_halved = false;
  // True if gradients of parameters may run beside the calls that follow them.
  bool has_branches = false;
  Fusions fusions = Fusions::kWhereFaster;
  // The bytes that the device's memory moves in a microsecond.
  double bytes_per_microsecond = 3e6;
  // The work that a choice of a plan or product is worth.
  Effort effort = Effort::kInherit;
  // These find plans for convolutions and attention, and for products. `products` is null if
  // nothing can be run.
  dnn::Planner* planner = nullptr;
  blas::MatmulPlanner* products = nullptr;
};

}  // namespace trainyard::engine::cuda
