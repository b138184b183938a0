// Compiles the kernels over bf16, for machines that convert in one instruction. The flags are in
// CMakeLists.txt.
#define TY_KERNEL_SET kBf16Kernels
#define TY_KERNEL_NAME "avx512_bf16"
#define TY_KERNEL_TYPE Bf16
#include "worker/engine/backend/cpu/kernels.inc"
