// Lets tests choose what the emulated cuBLASLt supports.
#pragma once

namespace trainyard::cuda_on_cpu {

// Makes cuBLASLt offer no algorithm, from here on, for products with an epilogue.
void RefuseEpilogues(bool refuses);

}  // namespace trainyard::cuda_on_cpu
