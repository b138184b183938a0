// From a batch as the host sent it to what the first layer reads: conversion, normalisation, NHWC.
// And augmentation of 8-bit images on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "worker/engine/backend/cuda/step_control.h"
#include "worker/engine/backend/cuda/types.h"

namespace trainyard::engine::cuda {

// inputs: floats [rows, channels, height, width] at control->inputs -> images. Padding channels of
// `images` become zero.
void ReadImages(const StepControl* control, View images, const ImageShape& shape,
                cudaStream_t stream);
// The way back, for the gradient of the input: floats [rows, channels, height, width].
void WriteImages(View images, float* values, const ImageShape& shape, cudaStream_t stream);
// Floats [rows, features] at control->inputs -> features.
void ReadFeatures(const StepControl* control, View features, int64_t rows, int64_t count,
                  cudaStream_t stream);

// How a row is made of a stored image: shifted by (dx, dy) with black beyond the border, mirrored,
// then a square hidden. As data::Augmentation draws it.
struct RowTransform {
  int64_t image = 0;  // index of the stored image
  int16_t dx = 0;     // source x = x + dx, after mirroring x
  int16_t dy = 0;
  int16_t cut_x = 0;  // square [cut_x, cut_x + cut_width) x [cut_y, ...), 0 wide: none
  int16_t cut_y = 0;
  int16_t cut_width = 0;
  int16_t cut_height = 0;
  int32_t flip = 0;
};
// Stored images: bytes [count, channels, height, width], on the device.
struct StoredImages {
  const uint8_t* pixels = nullptr;
  float mean[4] = {0, 0, 0, 0};  // of byte / 255, by channel
  float stddev[4] = {1, 1, 1, 1};
};
// control->inputs: RowTransform [rows]. (byte / 255 - mean) / stddev; black is byte 0; hidden is 0
// after normalisation. At most 4 channels.
void AugmentImages(const StepControl* control, const StoredImages& stored, View images,
                   const ImageShape& shape, cudaStream_t stream);

}  // namespace trainyard::engine::cuda
