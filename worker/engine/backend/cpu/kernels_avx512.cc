// Compiles the kernels for this instruction set. Its flags are in CMakeLists.txt.
#define TY_KERNEL_SET kAvx512Kernels
#define TY_KERNEL_NAME "avx512"
#define TY_KERNEL_TYPE float
#define TY_KERNEL_WINOGRAD
#include "worker/engine/backend/cpu/kernels.inc"
