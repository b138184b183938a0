// Checks the types and epilogues of a product against cuBLASLt's tables.
#include "tests/testing/cuda_on_cpu/cublaslt/support.h"

#include <atomic>
#include <limits>

#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"

namespace trainyard::cuda_on_cpu::cublaslt {
namespace {

bool IsShape(const Layout& layout) {
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  return layout.rows > 0 && layout.columns > 0 && layout.rows <= kMax && layout.columns <= kMax &&
         layout.leading >= static_cast<int64_t>(layout.rows);
}

bool IsOperation(int32_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
}

bool SizesAgree(const Product& product) {
  const bool flips_a = product.description->transposes_a == CUBLAS_OP_T;
  const bool flips_b = product.description->transposes_b == CUBLAS_OP_T;
  const uint64_t a_rows = flips_a ? product.a->columns : product.a->rows;
  const uint64_t a_columns = flips_a ? product.a->rows : product.a->columns;
  const uint64_t b_rows = flips_b ? product.b->columns : product.b->rows;
  const uint64_t b_columns = flips_b ? product.b->rows : product.b->columns;
  return a_rows == product.d->rows && b_columns == product.d->columns && a_columns == b_rows &&
         product.c->rows == product.d->rows && product.c->columns == product.d->columns;
}

bool TypesAreSupported(const Product& product) {
  const uint32_t input = product.a->type;
  const uint32_t output = product.d->type;
  if (product.b->type != input || product.c->type != output) return false;
  if (product.description->scale != CUDA_R_32F) return false;
  switch (product.description->compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (input == CUDA_R_32F) return output == CUDA_R_32F;
      return (input == CUDA_R_16F || input == CUDA_R_16BF) &&
             (output == input || output == CUDA_R_32F);
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return input == CUDA_R_32F && output == CUDA_R_32F;
    default:
      return false;
  }
}

std::atomic<bool> refuses_epilogues = false;
std::atomic<bool> refuses_gelu = false;

bool IsRefused(const Product& product) {
  return (refuses_epilogues && product.description->epilogue != CUBLASLT_EPILOGUE_DEFAULT) ||
         (refuses_gelu && (product.has_gelu() || product.has_gelu_gradient()));
}

// The bias and the aux have the output's type, outside of 8-bit types.
bool IsTypeOfOutput(const Product& product, int32_t type) {
  return type == -1 || type == static_cast<int32_t>(product.d->type);
}

bool EpilogueIsSupported(const Product& product) {
  if (IsRefused(product)) return false;
  switch (product.description->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return (!product.has_vector() || IsTypeOfOutput(product, product.description->bias_type)) &&
             (!product.has_aux() || IsTypeOfOutput(product, product.description->aux_type));
    default:
      return false;
  }
}

}  // namespace

uint32_t BytesOf(uint32_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

cublasStatus_t Check(const Product& product) {
  const Description* description = product.description;
  for (const Layout* layout : {product.a, product.b, product.c, product.d}) {
    if (layout == nullptr || !IsShape(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (description == nullptr || !IsOperation(description->transposes_a) ||
      !IsOperation(description->transposes_b) || description->transposes_c != CUBLAS_OP_N ||
      !SizesAgree(product)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Layout* layout : {product.a, product.b, product.c, product.d}) {
    if (layout->order != CUBLASLT_ORDER_COL || layout->batch_count != 1) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  if (description->pointer_mode != CUBLASLT_POINTER_MODE_HOST ||
      description->fill != CUBLAS_FILL_MODE_FULL || !TypesAreSupported(product) ||
      !EpilogueIsSupported(product)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cublaslt

namespace trainyard::cuda_on_cpu {

void RefuseEpilogues(bool refuses) {
  cublaslt::refuses_epilogues = refuses;
}
void RefuseGelu(bool refuses) {
  cublaslt::refuses_gelu = refuses;
}

}  // namespace trainyard::cuda_on_cpu
