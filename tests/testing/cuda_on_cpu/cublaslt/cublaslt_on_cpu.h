// Lets tests choose what the emulated cuBLASLt supports, and what it does wrong.
#pragma once

namespace trainyard::cuda_on_cpu {

// Makes cuBLASLt offer no algorithm, from here on, for products with an epilogue.
void RefuseEpilogues(bool refuses);
// Makes it offer no algorithm, from here on, for products with GELU or its gradient.
void RefuseGelu(bool refuses);

// Makes products that are split into so many parts leave out the last product of each sum, from
// here on; 0 stands for none. The heuristic proposes 3 parts, 4 parts and 1 part, in this order.
void SpoilSplits(int parts);

}  // namespace trainyard::cuda_on_cpu
