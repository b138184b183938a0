#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
namespace trainyard::engine::cuda {
void Sum(const float* x, int64_t count, unsigned blocks, unsigned threads, float* sum,
         cudaStream_t stream);
}
