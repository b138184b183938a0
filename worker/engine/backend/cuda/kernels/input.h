// Turns a batch as the host sent it into what the first layer reads: conversion, NHWC, and for
// 8-bit images augmentation and normalisation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// Makes images from what control->inputs holds. Padding channels of `images` become zero. Without
// stored pixels, the inputs are floats [rows, channels, height, width]. With control->stored.pixels
// they are StoredRow [rows]; each row is made of its image, black is byte 0, and there are at most
// kStoredChannelsMax channels. The control decides when the kernel runs, so one captured graph
// serves batches of both kinds.
void ReadImages(const StepControl* control, View images, const ImageShape& shape,
                cudaStream_t stream);
// Converts back, for the gradient of the input: floats [rows, channels, height, width].
void WriteImages(View images, float* values, const ImageShape& shape, cudaStream_t stream);
// Converts floats [rows, features] at control->inputs to features.
void ReadFeatures(const StepControl* control, View features, int64_t rows, int64_t count,
                  cudaStream_t stream);

}  // namespace trainyard::engine::cuda
