#include "worker/engine/backend/cpu/kernels.h"

namespace trainyard::engine::cpu {

const Kernels& BestKernels() {
  static const Kernels& best = [&]() -> const Kernels& {
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

}  // namespace trainyard::engine::cpu
