// Makes, fills and reads cuBLASLt's descriptors.
#include "tests/testing/cuda_on_cpu/cublaslt/descriptors.h"

#include <cstring>
#include <new>

namespace trainyard::cuda_on_cpu::cublaslt {
namespace {

template <class Content, class Handle>
Content* As(Handle handle) {
  auto* content = reinterpret_cast<Content*>(handle);
  return content != nullptr && content->magic == Content::kMagic ? content : nullptr;
}

// The address of an attribute, and its size; null: there is none.
struct Field {
  void* data = nullptr;
  size_t size = 0;
};
template <class Value>
Field FieldOf(Value& value) {
  return {&value, sizeof(value)};
}

Field FieldOf(Layout* layout, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return FieldOf(layout->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return FieldOf(layout->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return FieldOf(layout->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return FieldOf(layout->columns);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return FieldOf(layout->leading);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return FieldOf(layout->batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return FieldOf(layout->batch_stride);
    default:
      return {};
  }
}

Field FieldOf(Description* description, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return FieldOf(description->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return FieldOf(description->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return FieldOf(description->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return FieldOf(description->transposes_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return FieldOf(description->transposes_b);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return FieldOf(description->transposes_c);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
      return FieldOf(description->fill);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return FieldOf(description->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return FieldOf(description->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return FieldOf(description->bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return FieldOf(description->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return FieldOf(description->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return FieldOf(description->aux_leading);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return FieldOf(description->aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return FieldOf(description->aux_type);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return FieldOf(description->multiprocessors);
    default:
      return {};
  }
}

Field FieldOf(Preference* preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return FieldOf(preference->search);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return FieldOf(preference->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return FieldOf(preference->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return FieldOf(preference->alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return FieldOf(preference->alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return FieldOf(preference->alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return FieldOf(preference->alignments[3]);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return FieldOf(preference->waves);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return FieldOf(preference->implementations);
    default:
      return {};
  }
}

template <class Content, class Handle, class Attribute>
cublasStatus_t SetAttribute(Handle handle, Attribute attribute, const void* value, size_t size) {
  auto* content = As<Content>(handle);
  if (content == nullptr || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Field field = FieldOf(content, attribute);
  if (field.data == nullptr || field.size != size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field.data, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Content, class Handle, class Attribute>
cublasStatus_t GetAttribute(Handle handle, Attribute attribute, void* value, size_t size,
                            size_t* written) {
  auto* content = As<Content>(handle);
  if (content == nullptr || (size == 0 && written == nullptr) || (size > 0 && value == nullptr)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Field field = FieldOf(content, attribute);
  if (field.data == nullptr || (size != 0 && field.size != size)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (size > 0) std::memcpy(value, field.data, size);
  if (written != nullptr) *written = field.size;
  return CUBLAS_STATUS_SUCCESS;
}

// Constructs `content` in the caller's memory.
template <class Content, class Handle>
cublasStatus_t Init(Handle handle, size_t size, const Content& content) {
  if (handle == nullptr || size < sizeof(Content)) return CUBLAS_STATUS_ALLOC_FAILED;
  std::memset(static_cast<void*>(handle), 0, size);
  new (handle) Content(content);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Content, class Opaque>
cublasStatus_t Create(Opaque** handle, const Content& content) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new Opaque;
  return Init(*handle, sizeof(Opaque), content);
}

template <class Content, class Opaque>
cublasStatus_t Destroy(Opaque* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_SUCCESS;
  auto* content = As<Content>(handle);
  if (content == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  content->magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

Layout MakeLayout(cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading) {
  return {.magic = Layout::kMagic,
          .type = static_cast<uint32_t>(type),
          .order = CUBLASLT_ORDER_COL,
          .batch_count = 1,
          .rows = rows,
          .columns = columns,
          .leading = leading,
          .batch_stride = 0};
}

Description MakeDescription(cublasComputeType_t compute, cudaDataType_t scale) {
  Description description = {};
  description.magic = Description::kMagic;
  description.compute = compute;
  description.scale = scale;
  description.pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  description.transposes_a = description.transposes_b = description.transposes_c = CUBLAS_OP_N;
  description.fill = CUBLAS_FILL_MODE_FULL;
  description.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  description.bias_type = -1;
  description.aux_type = -1;
  return description;
}

Preference MakePreference() {
  Preference preference = {};
  preference.magic = Preference::kMagic;
  preference.search = CUBLASLT_SEARCH_BEST_FIT;
  preference.reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  for (uint32_t& alignment : preference.alignments) alignment = 256;
  preference.implementations = ~uint64_t{0};
  return preference;
}

}  // namespace

const Layout* Find(cublasLtMatrixLayout_t handle) {
  return As<Layout>(handle);
}
const Description* Find(cublasLtMatmulDesc_t handle) {
  return As<Description>(handle);
}
const Preference* Find(cublasLtMatmulPreference_t handle) {
  return As<Preference>(handle);
}

}  // namespace trainyard::cuda_on_cpu::cublaslt

using trainyard::cuda_on_cpu::cublaslt::Create;
using trainyard::cuda_on_cpu::cublaslt::Description;
using trainyard::cuda_on_cpu::cublaslt::Destroy;
using trainyard::cuda_on_cpu::cublaslt::GetAttribute;
using trainyard::cuda_on_cpu::cublaslt::Init;
using trainyard::cuda_on_cpu::cublaslt::Layout;
using trainyard::cuda_on_cpu::cublaslt::MakeDescription;
using trainyard::cuda_on_cpu::cublaslt::MakeLayout;
using trainyard::cuda_on_cpu::cublaslt::MakePreference;
using trainyard::cuda_on_cpu::cublaslt::Preference;
using trainyard::cuda_on_cpu::cublaslt::SetAttribute;

extern "C" {

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading) {
  return Init(layout, size, MakeLayout(type, rows, columns, leading));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return Create(layout, MakeLayout(type, rows, columns, leading));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<Layout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t size) {
  return SetAttribute<Layout>(layout, attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value, size_t size, size_t* written) {
  return GetAttribute<Layout>(layout, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  return Init(description, size, MakeDescription(compute, scale));
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  return Create(description, MakeDescription(compute, scale));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return Destroy<Description>(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  return SetAttribute<Description>(description, attribute, value, size);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, void* value,
                                              size_t size, size_t* written) {
  return GetAttribute<Description>(description, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  return Init(preference, size, MakePreference());
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Create(preference, MakePreference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  return SetAttribute<Preference>(preference, attribute, value, size);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* value, size_t size, size_t* written) {
  return GetAttribute<Preference>(preference, attribute, value, size, written);
}

}  // extern "C"
