// Compiles the kernels for this instruction set. Its flags are in CMakeLists.txt.
#define TY_KERNEL_SET kBaselineKernels
#define TY_KERNEL_NAME "baseline"
#define TY_KERNEL_TYPE float
#include "worker/engine/backend/cpu/kernels.inc"
