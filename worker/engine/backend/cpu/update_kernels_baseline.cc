// Compiles the update kernels for this instruction set. Its flags are in CMakeLists.txt.
#define TY_KERNEL_SET kBaselineUpdateKernels
#define TY_KERNEL_NAME "baseline"
#include "worker/engine/backend/cpu/update_kernels.inc"
