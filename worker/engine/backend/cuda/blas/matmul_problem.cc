// Gives each problem a name, and refuses problems that no product can solve.
#include "worker/engine/backend/cuda/blas/matmul_problem.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard::engine::cuda::blas {
namespace {

absl::string_view TypeName(Type type) {
  switch (type) {
    case Type::kF32:
      return "f32";
    case Type::kF16:
      return "f16";
    case Type::kBf16:
      return "bf16";
  }
  return "";
}

absl::string_view SuffixOf(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "";
    case Activation::kRelu:
      return " relu";
    case Activation::kGelu:
      return " gelu";
    case Activation::kGeluGradient:
      return " dgelu";
  }
  return "";
}

absl::Status Invalid(const MatmulProblem& problem, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("product ", problem.Key(), ": ", reason));
}

// Checks what is done besides multiplying.
absl::Status ValidateExtras(const MatmulProblem& problem) {
  const auto is_short = [&](int64_t stride) { return stride != 0 && stride < problem.n; };
  if (is_short(problem.addend_stride) || is_short(problem.aux_stride)) {
    return Invalid(problem, "a stride is shorter than a row");
  }
  if (problem.adds && problem.addend_stride != 0) {
    return Invalid(problem, "d and another addend cannot both be added");
  }
  const bool is_gelu = problem.activation == Activation::kGelu;
  const bool is_gradient = problem.activation == Activation::kGeluGradient;
  if (is_gradient ? problem.aux_stride == 0 || problem.bias : problem.aux_stride != 0 && !is_gelu) {
    return Invalid(problem, is_gradient ? "the gradient of GELU has an aux, and no bias"
                                        : "only GELU and its gradient have an aux");
  }
  const bool has_epilogue = problem.bias || problem.activation != Activation::kNone;
  if (problem.summed != Summed::kNone && (has_epilogue || problem.output != Type::kF32)) {
    return Invalid(problem, "sums of an input are f32, as d, and come without bias or activation");
  }
  if ((problem.summed == Summed::kA && !problem.a_transposed) ||
      (problem.summed == Summed::kB && problem.b_transposed)) {
    return Invalid(problem, "the input that is summed must lie with k rows");
  }
  return absl::OkStatus();
}

}  // namespace

std::string MatmulProblem::Key() const {
  std::string key = absl::StrCat(TypeName(input), tf32 ? "(tf32)" : "", " ", TypeName(output), " m",
                                 m, " n", n, " k", k, a_transposed ? " aT" : " a", a_stride,
                                 b_transposed ? " bT" : " b", b_stride, " d", d_stride);
  if (adds) absl::StrAppend(&key, " adds");
  if (addend_stride != 0) absl::StrAppend(&key, " c", addend_stride);
  if (bias) absl::StrAppend(&key, " bias");
  absl::StrAppend(&key, SuffixOf(activation));
  if (aux_stride != 0) absl::StrAppend(&key, " aux", aux_stride);
  if (summed != Summed::kNone) absl::StrAppend(&key, summed == Summed::kA ? " sumA" : " sumB");
  return key;
}

Extents ExtentsOf(const MatmulProblem& problem) {
  Extents extents = {problem.m, problem.k, problem.k, problem.n};
  if (problem.a_transposed) std::swap(extents.a_rows, extents.a_columns);
  if (problem.b_transposed) std::swap(extents.b_rows, extents.b_columns);
  return extents;
}

absl::Status Validate(const MatmulProblem& problem) {
  const Extents extents = ExtentsOf(problem);
  if (problem.m < 1 || problem.n < 1 || problem.k < 1) {
    return Invalid(problem, "sizes must be positive");
  }
  if (problem.a_stride < extents.a_columns || problem.b_stride < extents.b_columns ||
      problem.d_stride < problem.n) {
    return Invalid(problem, "a stride is shorter than a row");
  }
  if (problem.output != Type::kF32 && problem.output != problem.input) {
    return Invalid(problem, absl::StrCat(TypeName(problem.input), " inputs cannot give ",
                                         TypeName(problem.output)));
  }
  return ValidateExtras(problem);
}

}  // namespace trainyard::engine::cuda::blas
