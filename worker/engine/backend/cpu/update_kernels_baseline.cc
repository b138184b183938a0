// The update kernels for this instruction set; its flags stand in CMakeLists.txt.
#define TY_KERNEL_SET kBaselineUpdateKernels
#define TY_KERNEL_NAME "baseline"
#include "worker/engine/backend/cpu/update_kernels.inc"
