// Picks the kernels of the best instruction set that this machine and oneDNN have.
#include "worker/engine/backend/cpu/kernels.h"

namespace trainyard::engine::cpu {

template <>
const Kernels<float>& BestKernels() {
  static const Kernels<float>& best = [&]() -> const Kernels<float>& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return kAvx512Kernels;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return kAvx2Kernels;
    }
    return kBaselineKernels;
  }();
  return best;
}

template <>
const Kernels<Bf16>& BestKernels() {
  return kBf16Kernels;
}

}  // namespace trainyard::engine::cpu
