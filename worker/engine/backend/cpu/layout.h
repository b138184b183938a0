// Describes how a per-row value lies in memory: [rows][C / block][H][W][block], with C padded to
// whole blocks. Block 1 is plain NCHW. A flat value of F features is [F, 1, 1] with block 1, and a
// sequence [T, C] is treated as T C features. The output of flatten keeps the layout of its input,
// so that flattening moves no data, and linear reads any layout.
#pragma once

#include <cstdint>

#include "dnnl.hpp"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::cpu {

enum class NumberType { kF32, kBf16 };

inline int64_t NumberBytes(NumberType type) {
  return type == NumberType::kBf16 ? 2 : 4;
}

struct Layout {
  int64_t channels = 0;  // 0 if it is not laid out
  int64_t height = 1;
  int64_t width = 1;
  int64_t block = 1;
  NumberType type = NumberType::kF32;

  int64_t blocks() const { return (channels + block - 1) / block; }
  int64_t plane() const { return height * width; }
  // Returns the elements of one row, with padding.
  int64_t elements() const { return blocks() * block * plane(); }
  int64_t bytes() const { return elements() * NumberBytes(type); }
  // Returns true if the elements lie in NCHW order, whatever the block says.
  bool is_plain() const { return block == 1 || (plane() == 1 && channels % block == 0); }
  Layout Plain() const { return {channels, height, width, 1, type}; }
  Layout As(NumberType other) const { return {channels, height, width, block, other}; }

  friend bool operator==(const Layout&, const Layout&) = default;
};

// Addresses the planes of a value, channel block by channel block of each row.
template <class T>
struct Planes {
  T* first = nullptr;  // null if there is no value
  int64_t row = 0;     // elements from row to row
  int64_t plane = 0;   // elements of a plane
  int64_t blocks = 0;  // of a row

  // Returns plane p of all rows, in order.
  T* operator[](int64_t p) const {
    return first == nullptr ? nullptr : first + p / blocks * row + p % blocks * plane;
  }
};

// Returns the layout of a value of this shape in NCHW order, in floats.
Layout PlainLayout(const Shape& shape);

dnnl::memory::data_type DataType(NumberType type);
dnnl::memory::dims RowDims(const Layout& layout, int64_t rows);
dnnl::memory::desc Describe(const Layout& layout, int64_t rows);
// Sets `layout` to `like` in one of the blocks that we know. Returns false if the descriptor is
// something else.
bool FindLayout(const dnnl::memory::desc& desc, const Layout& like, int64_t rows, Layout* layout);

}  // namespace trainyard::engine::cpu
