// Picks the kernels of the best instruction set that this machine has and oneDNN uses.
#include "worker/engine/backend/cpu/kernels.h"

#include "dnnl.hpp"

namespace trainyard::engine::cpu {
namespace {

// oneDNN numbers its instruction sets by bits, so that each set has the bits of those it contains.
// DNNL_MAX_CPU_ISA bounds it, and so bounds our kernels as well.
bool Has(dnnl::cpu_isa isa) {
  static const auto available = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (available & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

}  // namespace

template <>
const Kernels<float>& BestKernels() {
  static const Kernels<float>& best = [&]() -> const Kernels<float>& {
    if (Has(dnnl::cpu_isa::avx512_core)) {
      return kAvx512Kernels;
    }
    if (Has(dnnl::cpu_isa::avx2) && __builtin_cpu_supports("fma")) {
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
