// Products of batches of matrices.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

// a [..., rows, inner], b [..., inner, columns], c [..., rows, columns]. Leading dimensions of a
// and b may be 1.
struct Matmul {
  TensorSpec a, b, c;
};

std::vector<int64_t> WithMatrix(std::vector<int64_t> dims, int64_t rows, int64_t columns) {
  dims[dims.size() - 2] = rows;
  dims[dims.size() - 1] = columns;
  return dims;
}

void Run(const Matmul& matmul, Memory* memory) {
  const size_t rank = matmul.c.rank();
  const int64_t rows = matmul.c.dims[rank - 2];
  const int64_t columns = matmul.c.dims[rank - 1];
  const int64_t inner = matmul.a.dims[rank - 1];
  const Order order = NaturalOrder(rank);
  const std::vector<float> a =
      memory->Load(matmul.a, order, WithMatrix(matmul.c.dims, rows, inner));
  const std::vector<float> b =
      memory->Load(matmul.b, order, WithMatrix(matmul.c.dims, inner, columns));
  std::vector<float> c(static_cast<size_t>(matmul.c.elements()));
  std::vector<double> sums(static_cast<size_t>(columns));
  const int64_t all_rows = matmul.c.elements() / columns;
  for (int64_t row = 0; row < all_rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const float* matrix = b.data() + row / rows * inner * columns;
    for (int64_t i = 0; i < inner; ++i) {
      const auto factor = static_cast<double>(a[static_cast<size_t>(row * inner + i)]);
      for (int64_t j = 0; j < columns; ++j) {
        sums[static_cast<size_t>(j)] += factor * static_cast<double>(matrix[i * columns + j]);
      }
    }
    std::transform(sums.begin(), sums.end(), c.begin() + row * columns,
                   [](double sum) { return static_cast<float>(sum); });
  }
  memory->Store(matmul.c, c);
}

}  // namespace

cudnnStatus_t CompileMatmul(const Descriptor& descriptor, Operation* operation) {
  Matmul matmul;
  matmul.a = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  matmul.b = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  matmul.c = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  TY_CUDNN_TRY(ExpectFloatMath(
      descriptor.Child(CUDNN_ATTR_OPERATION_MATMUL_DESC)->Int(CUDNN_ATTR_MATMUL_COMP_TYPE, 0)));
  const auto& a = matmul.a.dims;
  const auto& b = matmul.b.dims;
  const auto& c = matmul.c.dims;
  const size_t rank = c.size();
  bool fits = rank >= 3 && a.size() == rank && b.size() == rank;
  fits = fits && a[rank - 2] == c[rank - 2] && b[rank - 1] == c[rank - 1] &&
         a[rank - 1] == b[rank - 2];
  for (size_t i = 0; fits && i + 2 < rank; ++i) {
    fits = (a[i] == c[i] || a[i] == 1) && (b[i] == c[i] || b[i] == 1);
  }
  TY_CUDNN_TRY(ExpectShape(fits, absl::StrCat("product of ", ShapeText(a), " and ", ShapeText(b),
                                              " into ", ShapeText(c))));
  operation->inputs = {matmul.a, matmul.b};
  operation->outputs = {matmul.c};
  operation->run = [matmul](Memory* memory) { Run(matmul, memory); };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
