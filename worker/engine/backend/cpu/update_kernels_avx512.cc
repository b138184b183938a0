// The update kernels for this instruction set; its flags stand in CMakeLists.txt.
#define TY_KERNEL_SET kAvx512UpdateKernels
#define TY_KERNEL_NAME "avx512"
#include "worker/engine/backend/cpu/update_kernels.inc"
