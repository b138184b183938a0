// Decides which products the emulated cuBLASLt accepts, by the tables of its documentation (cuBLAS
// 13, section cublasLtMatmul) for the types that matter here.
#pragma once

#include <cublasLt.h>

#include "tests/testing/cuda_on_cpu/cublaslt/descriptors.h"

namespace trainyard::cuda_on_cpu::cublaslt {

// The descriptors of one product.
struct Product {
  const Description* description = nullptr;
  const Layout* a = nullptr;
  const Layout* b = nullptr;
  const Layout* c = nullptr;
  const Layout* d = nullptr;

  // The rows, columns and length of the sums of the result, as cuBLASLt sees it.
  int64_t rows() const { return static_cast<int64_t>(d->rows); }
  int64_t columns() const { return static_cast<int64_t>(d->columns); }
  int64_t depth() const {
    return static_cast<int64_t>(description->transposes_a == CUBLAS_OP_T ? a->rows : a->columns);
  }
  bool has_bias() const { return Has(CUBLASLT_EPILOGUE_BIAS); }
  bool has_relu() const { return Has(CUBLASLT_EPILOGUE_RELU); }
  bool has_gelu() const { return Has(CUBLASLT_EPILOGUE_GELU); }
  bool has_gelu_gradient() const { return description->epilogue == CUBLASLT_EPILOGUE_DGELU; }
  bool has_aux() const { return has_gelu_gradient() || Has(kAuxBit); }
  // BGRADA sums the rows of op(A), and BGRADB the columns of op(B).
  bool sums_a() const { return description->epilogue == CUBLASLT_EPILOGUE_BGRADA; }
  bool sums_b() const { return description->epilogue == CUBLASLT_EPILOGUE_BGRADB; }
  // True if the epilogue reads a bias, or writes sums in its place.
  bool has_vector() const { return has_bias() || sums_a() || sums_b(); }
  int64_t vector_length() const { return sums_b() ? columns() : rows(); }

 private:
  static constexpr uint32_t kAuxBit = CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU;
  bool Has(uint32_t bits) const { return (description->epilogue & bits) == bits; }
};

// INVALID_VALUE for descriptors that are invalid or contradict each other, NOT_SUPPORTED for types
// and epilogues that the tables do not have.
cublasStatus_t Check(const Product& product);

// Describes how an algorithm of the emulation works. It is stored in cublasLtMatmulAlgo_t.
struct Algorithm {
  static constexpr uint64_t kMagic = 0x416c676f;
  uint64_t magic;
  uint64_t workspace;
  uint64_t rows, columns, depth;  // of the product that it is for
  uint8_t alignments[4];          // what it may rely on in A, B, C and D
  uint8_t vector_alignment;       // and in the bias or sums, by their address at that time
  uint8_t aux_alignment;          // and in the aux, likewise
  uint32_t parts;                 // of each sum
  uint32_t rounds_parts;          // to the output's type: INPLACE and OUTPUT_TYPE
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

uint32_t BytesOf(uint32_t type);

}  // namespace trainyard::cuda_on_cpu::cublaslt
