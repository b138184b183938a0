// cublasLtMatmul and its heuristic, emulated.
//
// The heuristic proposes, as far as the preference allows them: a split of the sums whose parts are
// rounded to the output's type, one whose parts stay f32, and no split. A workspace is filled with
// NaNs.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "tests/testing/cuda_on_cpu/cublaslt/cublaslt_on_cpu.h"
#include "tests/testing/cuda_on_cpu/cublaslt/descriptors.h"
#include "tests/testing/cuda_on_cpu/cublaslt/gemm.h"
#include "tests/testing/cuda_on_cpu/cublaslt/support.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"

struct cublasLtContext {
  uint64_t magic;
};

namespace trainyard::cuda_on_cpu::cublaslt {
namespace {

constexpr uint64_t kContextMagic = 0x436f6e74;
constexpr uint64_t kWorkspacePerSplit = 65536;
constexpr uint32_t kSplitParts = 3;
// The alignment that a vectorised load needs.
constexpr uint32_t kFastAlignment = 16;
// The aux of GELU has columns of a multiple of so many elements.
constexpr int64_t kAuxLeadingMultiple = 8;

std::atomic<int> spoiled_parts{0};

bool IsContext(cublasLtHandle_t handle) {
  return handle != nullptr && handle->magic == kContextMagic;
}

bool IsAligned(const void* pointer, uint32_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Returns the alignment that an algorithm may rely on, by the address that it was asked for.
uint8_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint8_t>(
      address == 0 ? kFastAlignment : std::min<uintptr_t>(kFastAlignment, address & -address));
}

Algorithm MakeAlgorithm(const Product& product, const Preference& preference) {
  Algorithm algorithm = {};
  algorithm.magic = Algorithm::kMagic;
  algorithm.rows = product.d->rows;
  algorithm.columns = product.d->columns;
  algorithm.depth = static_cast<uint64_t>(product.depth());
  for (int i = 0; i < 4; ++i) {
    algorithm.alignments[i] =
        static_cast<uint8_t>(std::min(kFastAlignment, preference.alignments[i]));
  }
  algorithm.vector_alignment = AlignmentOf(product.description->bias);
  algorithm.aux_alignment = AlignmentOf(product.description->aux);
  algorithm.parts = 1;
  return algorithm;
}

// Rows that start at odd addresses cannot be loaded by vectors, so the caller must not have asked
// for an algorithm that does so.
bool RowsAreAligned(const Layout& layout, uint32_t alignment) {
  return layout.columns == 1 || layout.leading * static_cast<int64_t>(BytesOf(layout.type)) %
                                        std::min(kFastAlignment, alignment) ==
                                    0;
}

std::vector<Algorithm> Algorithms(const Product& product, const Preference& preference) {
  std::vector<Algorithm> algorithms;
  const auto add = [&](uint32_t parts, bool rounds_parts) {
    Algorithm algorithm = MakeAlgorithm(product, preference);
    algorithm.parts = parts;
    algorithm.rounds_parts = rounds_parts ? 1 : 0;
    algorithm.workspace = parts > 1 ? kWorkspacePerSplit * parts : 0;
    if (algorithm.workspace <= preference.workspace) algorithms.push_back(algorithm);
  };
  const uint32_t rounding =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if ((preference.reductions & rounding) != 0) add(kSplitParts, true);
  if ((preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0) {
    add(kSplitParts, false);
    add(kSplitParts + 1, false);
  }
  add(1, false);
  return algorithms;
}

bool ReadAlgorithm(const cublasLtMatmulAlgo_t& opaque, const Product& product,
                   Algorithm& algorithm) {
  std::memcpy(&algorithm, &opaque, sizeof(algorithm));
  return algorithm.magic == Algorithm::kMagic && algorithm.rows == product.d->rows &&
         algorithm.columns == product.d->columns &&
         algorithm.depth == static_cast<uint64_t>(product.depth());
}

// The pointers to A, B, C and D.
using Pointers = std::array<const void*, 4>;

// Memory from `data` on.
struct Range {
  const void* data = nullptr;
  int64_t bytes = 0;

  bool Overlaps(const Range& other) const {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto other_begin = reinterpret_cast<uintptr_t>(other.data);
    return data != nullptr && other.data != nullptr &&
           begin < other_begin + static_cast<uintptr_t>(other.bytes) &&
           other_begin < begin + static_cast<uintptr_t>(bytes);
  }
};

Range RangeOf(const void* data, int64_t rows, int64_t columns, int64_t leading, uint32_t type) {
  return {data, ((columns - 1) * leading + rows) * BytesOf(type)};
}
Range RangeOf(const void* data, const Layout& layout) {
  return RangeOf(data, static_cast<int64_t>(layout.rows), static_cast<int64_t>(layout.columns),
                 layout.leading, layout.type);
}

// A product must write apart from its other operands, since blocks read them while others
// write. Only C may be D.
bool IsWrittenApart(const Product& product, const Pointers& pointers, bool reads_c) {
  const Description& description = *product.description;
  std::vector<Range> read = {RangeOf(pointers[0], *product.a), RangeOf(pointers[1], *product.b)};
  std::vector<Range> written = {RangeOf(pointers[3], *product.d)};
  if (reads_c && pointers[2] != pointers[3]) read.push_back(RangeOf(pointers[2], *product.c));
  if (product.has_aux()) {
    const Range aux = RangeOf(description.aux, product.rows(), product.columns(),
                              description.aux_leading, product.d->type);
    (product.has_gelu() ? written : read).push_back(aux);
  }
  if (product.has_vector()) {
    const Range vector = {description.bias, product.vector_length() * BytesOf(product.d->type)};
    (product.has_bias() ? read : written).push_back(vector);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    for (const Range& range : read) {
      if (written[i].Overlaps(range)) return false;
    }
    for (size_t j = 0; j < i; ++j) {
      if (written[i].Overlaps(written[j])) return false;
    }
  }
  return true;
}

// The documentation does not say that the heuristic looks at these addresses and at the aux's
// leading dimension, so only products do.
bool EpilogueMemoryIsSane(const Product& product, const Algorithm& algorithm) {
  const Description& description = *product.description;
  if (product.has_vector() &&
      (description.bias == nullptr || !IsAligned(description.bias, algorithm.vector_alignment))) {
    return false;
  }
  return !product.has_aux() ||
         (description.aux != nullptr && IsAligned(description.aux, algorithm.aux_alignment) &&
          description.aux_leading >= product.rows() &&
          description.aux_leading % kAuxLeadingMultiple == 0);
}

bool MemoryIsSane(const Product& product, const Algorithm& algorithm, const Pointers& pointers,
                  bool reads_c) {
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (!IsAligned(pointers[i], algorithm.alignments[i])) return false;
  }
  if (!EpilogueMemoryIsSane(product, algorithm)) return false;
  if (reads_c && pointers[2] == nullptr) return false;
  // Two matrices may share memory only if they are the same.
  if (pointers[2] == pointers[3] && product.c->leading != product.d->leading) return false;
  return IsWrittenApart(product, pointers, reads_c);
}

bool WorkspaceIsSane(const Algorithm& algorithm, const void* workspace, size_t bytes) {
  return bytes >= algorithm.workspace && (algorithm.workspace == 0 || workspace != nullptr) &&
         IsAligned(workspace, kFastAlignment);
}

Gemm MakeGemm(const Product& product, const Algorithm& algorithm, const Pointers& pointers) {
  const Description& description = *product.description;
  const bool flips_a = description.transposes_a == CUBLAS_OP_T;
  const bool flips_b = description.transposes_b == CUBLAS_OP_T;
  Gemm gemm;
  gemm.rows = product.rows();
  gemm.columns = product.columns();
  gemm.depth = product.depth();
  gemm.a = {pointers[0], product.a->type, product.a->leading, flips_a};
  gemm.b = {pointers[1], product.b->type, product.b->leading, flips_b};
  gemm.c = {pointers[2], product.c->type, product.c->leading, false};
  gemm.d_type = product.d->type;
  gemm.d_leading = product.d->leading;
  gemm.rounds_to_tf32 = description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  gemm.parts = algorithm.parts;
  gemm.rounds_parts = algorithm.rounds_parts != 0;
  gemm.bias = product.has_bias() ? description.bias : nullptr;
  gemm.bias_type =
      description.bias_type == -1 ? product.d->type : static_cast<uint32_t>(description.bias_type);
  gemm.relu = product.has_relu();
  gemm.gelu = product.has_gelu();
  gemm.gelu_gradient = product.has_gelu_gradient();
  gemm.aux = product.has_aux() ? const_cast<void*>(description.aux) : nullptr;
  gemm.aux_leading = description.aux_leading;
  gemm.a_sums = product.sums_a() ? const_cast<void*>(description.bias) : nullptr;
  gemm.b_sums = product.sums_b() ? const_cast<void*>(description.bias) : nullptr;
  if (static_cast<int>(algorithm.parts) == spoiled_parts) --gemm.depth;
  return gemm;
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu::cublaslt

namespace trainyard::cuda_on_cpu {

void SpoilSplits(int parts) {
  cublaslt::spoiled_parts = parts;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::cublaslt::Algorithm;
using trainyard::cuda_on_cpu::cublaslt::Algorithms;
using trainyard::cuda_on_cpu::cublaslt::Check;
using trainyard::cuda_on_cpu::cublaslt::Find;
using trainyard::cuda_on_cpu::cublaslt::Gemm;
using trainyard::cuda_on_cpu::cublaslt::IsContext;
using trainyard::cuda_on_cpu::cublaslt::kContextMagic;
using trainyard::cuda_on_cpu::cublaslt::Layout;
using trainyard::cuda_on_cpu::cublaslt::MakeGemm;
using trainyard::cuda_on_cpu::cublaslt::MemoryIsSane;
using trainyard::cuda_on_cpu::cublaslt::Preference;
using trainyard::cuda_on_cpu::cublaslt::Product;
using trainyard::cuda_on_cpu::cublaslt::ReadAlgorithm;
using trainyard::cuda_on_cpu::cublaslt::RowsAreAligned;
using trainyard::cuda_on_cpu::cublaslt::Run;
using trainyard::cuda_on_cpu::cublaslt::WorkspaceIsSane;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = new cublasLtContext{kContextMagic};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!IsContext(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}
size_t cublasLtGetCudartVersion(void) {
  return CUDART_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  if (!IsContext(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  trainyard::cuda_on_cpu::TellPlan("cuBLASLt");
  const Preference* preference = Find(wish);
  if (requested <= 0 || results == nullptr || returned == nullptr || preference == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *returned = 0;
  const Product product = {Find(operation), Find(a), Find(b), Find(c), Find(d)};
  const cublasStatus_t status = Check(product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Layout* layouts[4] = {product.a, product.b, product.c, product.d};
  for (int i = 0; i < 4; ++i) {
    if (!RowsAreAligned(*layouts[i], preference->alignments[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const Algorithm& algorithm : Algorithms(product, *preference)) {
    if (*returned == requested) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
    result.workspaceSize = algorithm.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!IsContext(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Product product = {Find(operation), Find(a_layout), Find(b_layout), Find(c_layout),
                           Find(d_layout)};
  const cublasStatus_t status = Check(product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const float scale_c = *static_cast<const float*>(beta);
  Algorithm algorithm = {};
  if (algo == nullptr || !ReadAlgorithm(*algo, product, algorithm) ||
      !MemoryIsSane(product, algorithm, {a, b, c, d}, scale_c != 0) ||
      !WorkspaceIsSane(algorithm, workspace, workspace_bytes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Gemm gemm = MakeGemm(product, algorithm, {a, b, c, d});
  gemm.d = d;
  gemm.alpha = *static_cast<const float*>(alpha);
  gemm.beta = scale_c;
  const cudaError_t queued =
      trainyard::cuda_on_cpu::Enqueue(stream, [gemm, workspace, bytes = algorithm.workspace] {
        if (bytes > 0) std::memset(workspace, 0xff, bytes);
        Run(gemm);
      });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
