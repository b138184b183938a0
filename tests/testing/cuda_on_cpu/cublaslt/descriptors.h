// The contents of cuBLASLt's opaque descriptors in its emulation. They are also made in the
// caller's memory, so they fit into the sizes that the library's header gives.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace trainyard::cuda_on_cpu::cublaslt {

struct Layout {
  static constexpr uint32_t kMagic = 0x4c61796f;
  uint32_t magic;
  uint32_t type;
  int32_t order;
  int32_t batch_count;
  uint64_t rows;
  uint64_t columns;
  int64_t leading;
  int64_t batch_stride;
};

struct Description {
  static constexpr uint32_t kMagic = 0x44657363;
  uint32_t magic;
  int32_t compute;
  int32_t scale;
  int32_t pointer_mode;
  int32_t transposes_a, transposes_b, transposes_c;
  int32_t fill;
  uint32_t epilogue;
  int32_t bias_type;
  const void* bias;  // or where sums go
  int64_t bias_stride;
  const void* aux;
  int64_t aux_leading;
  int64_t aux_stride;  // from batch to batch
  int32_t aux_type;
  int32_t multiprocessors;
};

struct Preference {
  static constexpr uint32_t kMagic = 0x50726566;
  uint32_t magic;
  uint32_t search;
  uint64_t workspace;
  uint32_t reductions;
  uint32_t alignments[4];  // of A, B, C and D
  float waves;
  uint64_t implementations;
};

static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

// Returns null if the handle is null or belongs to something else.
const Layout* Find(cublasLtMatrixLayout_t handle);
const Description* Find(cublasLtMatmulDesc_t handle);
const Preference* Find(cublasLtMatmulPreference_t handle);

}  // namespace trainyard::cuda_on_cpu::cublaslt
