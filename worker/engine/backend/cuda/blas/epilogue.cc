// Chooses cuBLASLt's epilogues, by the rules of its documentation, and launches the kernels that
// stand in for them.
#include "worker/engine/backend/cuda/blas/epilogue.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"

namespace trainyard::engine::cuda::blas {
namespace {

// The aux of GELU must have rows of a multiple of so many elements.
constexpr int64_t kAuxStrideMultiple = 8;

bool IsGelu(const MatmulProblem& problem) {
  return problem.activation == Activation::kGelu || problem.activation == Activation::kGeluGradient;
}

bool HasEpilogue(const MatmulProblem& problem) {
  return problem.bias || problem.activation != Activation::kNone || problem.summed != Summed::kNone;
}

bool CublasDoesAll(const MatmulProblem& problem) {
  // cuBLASLt writes sums, and cannot add them to earlier ones.
  if (problem.summed != Summed::kNone && problem.adds) return false;
  return problem.aux_stride % kAuxStrideMultiple == 0;
}

// The input that is summed, which lies as [k, channels].
struct SummedInput {
  View view = {};
  int64_t channels = 0;
};
SummedInput SummedInputOf(const MatmulProblem& problem, const MatmulMemory& memory) {
  if (problem.summed == Summed::kA) {
    return {{const_cast<void*>(memory.a), problem.a_stride, problem.input}, problem.m};
  }
  return {{const_cast<void*>(memory.b), problem.b_stride, problem.input}, problem.n};
}

void RunActivation(const MatmulProblem& problem, const MatmulMemory& memory, cudaStream_t stream) {
  const View d = {memory.d, problem.d_stride, problem.output};
  const View aux = {memory.aux, problem.aux_stride, problem.output};
  switch (problem.activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return UnaryForward(Unary::kRelu, d, d, problem.m, problem.n, false, stream);
    case Activation::kGelu:
      return UnaryForward(Unary::kGeluTanh, aux ? aux : d, d, problem.m, problem.n, false, stream);
    case Activation::kGeluGradient:
      return UnaryGradient(Unary::kGeluTanh, d, aux, d, problem.m, problem.n, stream);
  }
}

}  // namespace

std::vector<Fused> FormsOf(const MatmulProblem& problem) {
  if (!HasEpilogue(problem)) return {Fused::kNone};
  std::vector<Fused> forms;
  if (CublasDoesAll(problem)) forms.push_back(Fused::kAll);
  if (problem.bias && IsGelu(problem)) forms.push_back(Fused::kBias);
  forms.push_back(Fused::kNone);
  return forms;
}

bool ComparesForms(const MatmulProblem& problem) {
  return IsGelu(problem) || problem.summed != Summed::kNone;
}

cublasLtEpilogue_t EpilogueOf(const MatmulProblem& problem, Fused fused) {
  if (fused == Fused::kNone) return CUBLASLT_EPILOGUE_DEFAULT;
  if (fused == Fused::kBias) return CUBLASLT_EPILOGUE_BIAS;
  // cuBLASLt's A is our b, and its B our a.
  if (problem.summed == Summed::kA) return CUBLASLT_EPILOGUE_BGRADB;
  if (problem.summed == Summed::kB) return CUBLASLT_EPILOGUE_BGRADA;
  const bool has_aux = problem.aux_stride != 0;
  switch (problem.activation) {
    case Activation::kNone:
      return problem.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Activation::kRelu:
      return problem.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::kGelu:
      if (has_aux) {
        return problem.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      }
      return problem.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Activation::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool GoesIntoAux(const MatmulProblem& problem, Fused fused) {
  return fused != Fused::kAll && problem.activation == Activation::kGelu && problem.aux_stride != 0;
}

OwnEpilogue OwnEpilogueOf(const MatmulProblem& problem, Fused fused) {
  OwnEpilogue own;
  if (fused == Fused::kAll) return own;
  const int64_t of_d = problem.m * problem.n * SizeOf(problem.output);
  if (fused == Fused::kNone && problem.bias) {
    // The kernel that adds the bias also rectifies.
    own = {1, 2 * of_d};
  } else if (problem.activation == Activation::kRelu) {
    own = {1, 2 * of_d};
  }
  if (IsGelu(problem)) {
    own.kernels += 1;
    own.bytes += GoesIntoAux(problem, fused) ? of_d : 2 * of_d;
  }
  if (problem.summed != Summed::kNone) {
    own.kernels += 1;
    own.bytes += problem.k * SummedInputOf(problem, {}).channels * SizeOf(problem.input);
  }
  return own;
}

int64_t OwnWorkspace(const MatmulProblem& problem, Fused fused) {
  if (fused == Fused::kAll || problem.summed == Summed::kNone) return 0;
  return ColumnSumWorkspace(problem.k, SummedInputOf(problem, {}).channels);
}

absl::Status RunOwnEpilogue(const MatmulProblem& problem, Fused fused, const MatmulMemory& memory,
                            cudaStream_t stream) {
  if (OwnEpilogueOf(problem, fused).kernels == 0) return absl::OkStatus();
  const bool adds_bias = fused == Fused::kNone && problem.bias;
  if (adds_bias) {
    const View target = GoesIntoAux(problem, fused)
                            ? View{memory.aux, problem.aux_stride, problem.output}
                            : View{memory.d, problem.d_stride, problem.output};
    AddBias(target, memory.bias, problem.activation == Activation::kRelu, problem.m, problem.n,
            stream);
  }
  if (!adds_bias || IsGelu(problem)) RunActivation(problem, memory, stream);
  if (problem.summed != Summed::kNone) {
    const SummedInput input = SummedInputOf(problem, memory);
    ColumnSum(input.view, problem.k, input.channels, problem.adds, memory.sums, memory.workspace,
              memory.tickets, {}, stream);
  }
  const cudaError_t error = cudaPeekAtLastError();
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("epilogue of product ", problem.Key(), ": ", cudaGetErrorString(error)));
}

}  // namespace trainyard::engine::cuda::blas
