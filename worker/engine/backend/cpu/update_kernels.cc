// Picks the kernels of an update from the same instruction set as all other kernels.
#include "worker/engine/backend/cpu/update_kernels.h"

#include "worker/engine/backend/cpu/kernels.h"

namespace trainyard::engine::cpu {

const UpdateKernels& BestUpdateKernels() {
  const Kernels<float>* best = &BestKernels<float>();
  if (best == &kAvx512Kernels) {
    return kAvx512UpdateKernels;
  }
  return best == &kAvx2Kernels ? kAvx2UpdateKernels : kBaselineUpdateKernels;
}

}  // namespace trainyard::engine::cpu
