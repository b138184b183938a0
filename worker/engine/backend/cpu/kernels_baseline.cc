// The kernels for this instruction set; its flags stand in CMakeLists.txt.
#define TY_KERNEL_SET kBaselineKernels
#define TY_KERNEL_NAME "baseline"
#define TY_KERNEL_TYPE float
#include "worker/engine/backend/cpu/kernels.inc"
