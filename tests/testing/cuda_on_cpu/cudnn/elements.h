// Converts rows of elements of any type to and from f32.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>

namespace trainyard::cuda_on_cpu::cudnn {

// Reads `count` elements that lie `stride` elements apart, the first at `data`.
void ReadRow(cudnnDataType_t type, const void* data, int64_t stride, int64_t count, float* values);

// Writes them, rounded to nearest even. Integers are rounded and saturated.
void WriteRow(cudnnDataType_t type, void* data, int64_t stride, int64_t count, const float* values);

// Replaces the values by what they would be after a write and a read.
void RoundRow(cudnnDataType_t type, int64_t count, float* values);

// Moves `value` by one unit in the last place of the type. Zeros, infinities, NaNs and integers
// stay.
float Nudge(cudnnDataType_t type, float value, bool upwards);

}  // namespace trainyard::cuda_on_cpu::cudnn
