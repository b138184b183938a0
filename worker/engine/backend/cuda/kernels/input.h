// From a batch as the host sent it to what the first layer reads: conversion, NHWC, and of 8-bit
// images augmentation and normalisation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

// What control->inputs holds -> images. Padding channels of `images` become zero. Without stored
// pixels: floats [rows, channels, height, width]. With control->stored.pixels: StoredRow [rows],
// each row made of its image; black is byte 0; at most kStoredChannelsMax channels. The control
// decides when the kernel runs, so that one captured graph serves batches of both kinds.
void ReadImages(const StepControl* control, View images, const ImageShape& shape,
                cudaStream_t stream);
// The way back, for the gradient of the input: floats [rows, channels, height, width].
void WriteImages(View images, float* values, const ImageShape& shape, cudaStream_t stream);
// Floats [rows, features] at control->inputs -> features.
void ReadFeatures(const StepControl* control, View features, int64_t rows, int64_t count,
                  cudaStream_t stream);

}  // namespace trainyard::engine::cuda
