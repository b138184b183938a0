// Compiles the update kernels for this instruction set. Its flags are in CMakeLists.txt.
#define TY_KERNEL_SET kAvx512UpdateKernels
#define TY_KERNEL_NAME "avx512"
#include "worker/engine/backend/cpu/update_kernels.inc"
