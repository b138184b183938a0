// Computes sizes in elements and bytes, and the texts of shapes and ops.
#include "worker/engine/graph/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::engine {

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    count *= size;
  }
  return count;
}

std::string ShapeString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

int Node::OverwrittenBy(int output) const {
  for (const Overwrite& overwrite : overwrites) {
    if (overwrite.output == output) {
      return overwrite.input;
    }
  }
  return -1;
}

int64_t BytesOf(Element element, int64_t count, int64_t real_bytes) {
  constexpr int64_t kBitsInByte = 8;
  switch (element) {
    case Element::kReal:
      return count * real_bytes;
    case Element::kByte:
      return count;
    case Element::kBit:
      return (count + kBitsInByte - 1) / kBitsInByte;
  }
  return 0;
}

ValueId Graph::Add(Value value) {
  values.push_back(std::move(value));
  return static_cast<ValueId>(values.size()) - 1;
}

absl::string_view OpName(OpKind op) {
  static constexpr absl::string_view kNames[] = {
#define TY_OP(kind, name) #name,
#include "worker/engine/graph/ops.def"
#undef TY_OP
  };
  return kNames[static_cast<size_t>(op)];
}

}  // namespace trainyard::engine
