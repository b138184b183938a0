// Defines the language in which kernels are written. It is compiled by nvcc for a GPU, and by the
// C++ compiler for the tests' emulation of one, which puts its own header before this one (see
// cmake/TrainyardCuda.cmake).
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>

// Declares shared memory whose size the launch gives, as `type* name`. A kernel may have it only
// once.
#define TY_DYNAMIC_SHARED(type, name)                              \
  extern __shared__ __align__(16) unsigned char dynamic_shared_[]; \
  type* name = reinterpret_cast<type*>(dynamic_shared_)
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "worker/engine/backend/cuda/device/types.h"

namespace trainyard::engine::cuda {

#ifdef __CUDACC__
// Launches `kernel` on the stream. An error stays for cudaGetLastError.
template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared,
            cudaStream_t stream, Arguments... arguments) {
  kernel<<<grid, block, dynamic_shared, stream>>>(static_cast<Parameters>(arguments)...);
}
#endif

// These convert elements from and to f32.
__device__ inline float ToFloat(float x) {
  return x;
}
__device__ inline float ToFloat(__half x) {
  return __half2float(x);
}
__device__ inline float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ inline T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Calls `body` with a null pointer to the type in which elements of `type` are stored.
template <class Body>
void WithType(Type type, const Body& body) {
  switch (type) {
    case Type::kF32:
      body(static_cast<float*>(nullptr));
      return;
    case Type::kF16:
      body(static_cast<__half*>(nullptr));
      return;
    case Type::kBf16:
      body(static_cast<__nv_bfloat16*>(nullptr));
      return;
  }
}

}  // namespace trainyard::engine::cuda
