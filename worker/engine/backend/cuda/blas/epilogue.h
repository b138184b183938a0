// Divides what a product does besides multiplying between cuBLASLt and kernels of our own. Only
// this folder uses it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/backend/cuda/blas/matmul_problem.h"

namespace trainyard::engine::cuda::blas {

// Says what cuBLASLt does besides multiplying and adding d or the addend.
enum class Fused {
  kAll,
  kBias,  // and a kernel of ours does the rest
  kNone,
};

// Returns the forms that the problem can take, the one with the fewest kernels first.
std::vector<Fused> FormsOf(const MatmulProblem& problem);

// Returns true if the first form is not sure to be the fastest. cuBLASLt's kernels with a GELU or
// with sums are other ones than those of the plain product.
bool ComparesForms(const MatmulProblem& problem);

cublasLtEpilogue_t EpilogueOf(const MatmulProblem& problem, Fused fused);

// Returns true if the product itself goes into the aux, from where a kernel of ours takes GELU.
bool GoesIntoAux(const MatmulProblem& problem, Fused fused);

OwnEpilogue OwnEpilogueOf(const MatmulProblem& problem, Fused fused);

// Returns the bytes of workspace that kernels of ours need after the product.
int64_t OwnWorkspace(const MatmulProblem& problem, Fused fused);

// Enqueues what is left to kernels of ours, after the product.
absl::Status RunOwnEpilogue(const MatmulProblem& problem, Fused fused, const MatmulMemory& memory,
                            cudaStream_t stream);

}  // namespace trainyard::engine::cuda::blas
