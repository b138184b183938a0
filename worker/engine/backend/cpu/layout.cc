// Translates between our layouts and the descriptors of oneDNN.
#include "worker/engine/backend/cpu/layout.h"

namespace trainyard::engine::cpu {

Layout PlainLayout(const Shape& shape) {
  if (shape.size() == 3) {
    return {shape[0], shape[1], shape[2], 1};
  }
  return {ElementCount(shape), 1, 1, 1};
}

dnnl::memory::data_type DataType(NumberType type) {
  return type == NumberType::kBf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

dnnl::memory::dims RowDims(const Layout& layout, int64_t rows) {
  return {rows, layout.channels, layout.height, layout.width};
}

dnnl::memory::desc Describe(const Layout& layout, int64_t rows) {
  using Tag = dnnl::memory::format_tag;
  const Tag tag = layout.block == 16 ? Tag::nChw16c : layout.block == 8 ? Tag::nChw8c : Tag::nchw;
  return {RowDims(layout, rows), DataType(layout.type), tag};
}

bool FindLayout(const dnnl::memory::desc& desc, const Layout& like, int64_t rows, Layout* layout) {
  for (const int64_t block : {1, 8, 16}) {
    Layout candidate = like;
    candidate.block = block;
    if (Describe(candidate, rows) == desc) {
      *layout = candidate;
      return true;
    }
  }
  return false;
}

}  // namespace trainyard::engine::cpu
