// Defines what changes from step to step. It lies in device memory, so that a captured graph never
// has to change. The host sends one with each batch, and kernels read it.
#pragma once

#include <cstdint>

#include "common/base/stored_row.h"

namespace trainyard::engine::cuda {

// 8-bit images in device memory, and how their bytes become inputs: (byte / 255 - mean) / stddev,
// by channel.
struct StoredImages {
  const uint8_t* pixels = nullptr;  // [count, channels, height, width]; null if inputs are floats
  // If it is not 0, row r is made of image r, whatever StoredRow::image says.
  int32_t is_by_row = 0;
  float mean[kStoredChannelsMax] = {0, 0, 0, 0};
  float stddev[kStoredChannelsMax] = {1, 1, 1, 1};
};

struct StepControl {
  // The batch, in device memory: see kernels/input.h.
  const void* inputs = nullptr;
  StoredImages stored = {};
  const int32_t* labels = nullptr;
  // The batch's share of the global batch: rows / global rows. What the batch adds to the sums is
  // multiplied by it.
  float weight = 0;
  // weight / labels. With it, gradients of the summed loss become those of the weighted mean.
  float gradient_scale = 0;
  // The key and position of dropout (graph/dropout.h).
  uint32_t key[2] = {0, 0};
  uint32_t step = 0;
  uint32_t first_row = 0;
  // The learning rate of the update.
  float lr = 0;
};

// State that the device itself keeps from step to step and reports to the host. It is part of the
// training state.
struct LossScale {
  float scale = 1;       // gradients are computed multiplied by it; 1 except in f16
  float good_steps = 0;  // updates since it changed last; a whole number
};

// The result of an update, for the host.
struct StepResult {
  float loss = 0;      // mean over the global batch
  float accuracy = 0;  // fraction
  // It is not 0 if a gradient was not finite.
  uint32_t not_finite = 0;
  // It is not 0 if the update was left out for that reason, and the loss scale was lowered (f16).
  uint32_t skipped = 0;
};

// The places of the results of the last updates, which may be pinned memory of the host. Update n,
// counted from 0, writes number n modulo `count`.
struct StepResults {
  StepResult* first = nullptr;
  uint32_t count = 1;
};

}  // namespace trainyard::engine::cuda
