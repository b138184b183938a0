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

}  // namespace

std::string MatmulProblem::Key() const {
  std::string key = absl::StrCat(TypeName(input), tf32 ? "(tf32)" : "", " ", TypeName(output), " m",
                                 m, " n", n, " k", k, a_transposed ? " aT" : " a", a_stride,
                                 b_transposed ? " bT" : " b", b_stride, " d", d_stride);
  if (adds) absl::StrAppend(&key, " adds");
  if (bias) absl::StrAppend(&key, " bias");
  if (relu) absl::StrAppend(&key, " relu");
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
    return absl::InvalidArgumentError(
        absl::StrCat("product ", problem.Key(), ": sizes must be positive"));
  }
  if (problem.a_stride < extents.a_columns || problem.b_stride < extents.b_columns ||
      problem.d_stride < problem.n) {
    return absl::InvalidArgumentError(
        absl::StrCat("product ", problem.Key(), ": a stride is shorter than a row"));
  }
  if (problem.output != Type::kF32 && problem.output != problem.input) {
    return absl::InvalidArgumentError(absl::StrCat("product ", problem.Key(), ": ",
                                                   TypeName(problem.input), " inputs cannot give ",
                                                   TypeName(problem.output)));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda::blas
