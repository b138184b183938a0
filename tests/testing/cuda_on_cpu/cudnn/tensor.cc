// Checks of tensors, and walks over their elements in a given order.
#include "tests/testing/cuda_on_cpu/cudnn/tensor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "tests/testing/cuda_on_cpu/cudnn/elements.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

// Well mixed bits of a counter (splitmix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Calls `row(offset, position)` for every run along the last dimension of the order. `offset` is
// that of its first element in the tensor, and `position` that element's place among all elements
// in the order.
template <typename Row>
void ForEachRow(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                const Order& order, const Row& row) {
  const size_t last = order.back();
  int64_t total = 1;
  for (const int64_t dim : shape) {
    total *= dim;
  }
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t position = 0; position < total; position += shape[last]) {
    row(offset, position);
    // Counts up like an odometer, beginning with the dimension before the last one.
    for (size_t place = order.size() - 1; place-- > 0;) {
      const size_t dim = order[place];
      offset += strides[dim];
      if (++index[dim] < shape[dim]) {
        break;
      }
      offset -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
  }
}

}  // namespace

int64_t TensorSpec::elements() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

int64_t TensorSpec::span() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

bool operator==(const TensorSpec& left, const TensorSpec& right) {
  return left.id == right.id && left.type == right.type && left.dims == right.dims &&
         left.strides == right.strides && left.alignment == right.alignment &&
         left.is_virtual == right.is_virtual && left.is_by_value == right.is_by_value;
}

int64_t TypeBytes(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
      return 1;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    default:
      return 0;
  }
}

TensorSpec SpecOf(const Descriptor& descriptor) {
  TensorSpec spec;
  spec.id = descriptor.Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  spec.type =
      static_cast<cudnnDataType_t>(descriptor.Int(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT));
  spec.dims = descriptor.Ints(CUDNN_ATTR_TENSOR_DIMENSIONS);
  spec.strides = descriptor.Ints(CUDNN_ATTR_TENSOR_STRIDES);
  spec.alignment = descriptor.Int(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  spec.is_virtual = descriptor.Int(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
  spec.is_by_value = descriptor.Int(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
  return spec;
}

cudnnStatus_t CheckTensor(const Descriptor& descriptor) {
  const TensorSpec spec = SpecOf(descriptor);
  const std::string name = absl::StrCat("tensor ", spec.id);
  const int64_t bytes = TypeBytes(spec.type);
  if (bytes == 0) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, absl::StrCat(name, ": type ", spec.type));
  }
  if (spec.dims.size() != spec.strides.size()) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(name, " has ", spec.dims.size(), " dimensions, but ",
                             spec.strides.size(), " strides"));
  }
  if (std::any_of(spec.dims.begin(), spec.dims.end(), [](int64_t dim) { return dim < 1; }) ||
      std::any_of(spec.strides.begin(), spec.strides.end(), [](int64_t s) { return s < 0; })) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(name, ": dimensions ", absl::StrJoin(spec.dims, "x"), ", strides ",
                             absl::StrJoin(spec.strides, ",")));
  }
  if (spec.alignment <= 0 || spec.alignment % bytes != 0) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(name, ": alignment ", spec.alignment, " of elements of ", bytes));
  }
  if (spec.is_virtual && spec.is_by_value) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(name, " is both virtual and by value"));
  }
  if (spec.is_by_value && spec.elements() != 1) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(name, " is by value and has ", spec.elements(), " elements"));
  }
  if (descriptor.Int(CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1) != 1 ||
      descriptor.Int(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TENSOR_REORDERING_NONE) !=
          CUDNN_TENSOR_REORDERING_NONE) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, absl::StrCat(name, " is vectorized"));
  }
  return CUDNN_STATUS_SUCCESS;
}

Order NaturalOrder(size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

Order MemoryOrder(const TensorSpec& spec) {
  Order order = NaturalOrder(spec.rank());
  // The stride of a dimension of size 1 has no effect, so the dimension goes outside.
  const auto key = [&](size_t dim) { return std::pair(spec.dims[dim] == 1, spec.strides[dim]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t left, size_t right) { return key(left) > key(right); });
  return order;
}

void* Memory::Place(const TensorSpec& spec, cudnnDataType_t* stored) {
  if (!spec.is_virtual) {
    *stored = spec.type;
    const auto found = bound_.find(spec.id);
    TY_CHECK(found != bound_.end());
    return found->second;
  }
  *stored = CUDNN_DATA_FLOAT;
  std::vector<float>& values = virtual_[spec.id];
  values.resize(static_cast<size_t>(spec.span()));
  return values.data();
}

std::vector<float> Memory::Load(const TensorSpec& spec, const Order& order,
                                const std::vector<int64_t>& shape) {
  cudnnDataType_t stored;
  const auto* data = static_cast<const char*>(Place(spec, &stored));
  const std::vector<int64_t>& dims = shape.empty() ? spec.dims : shape;
  std::vector<int64_t> strides = spec.strides;
  int64_t total = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    total *= dims[i];
    if (spec.dims[i] == 1) {
      strides[i] = 0;
    }
  }
  std::vector<float> values(static_cast<size_t>(total));
  const int64_t bytes = TypeBytes(stored);
  const size_t last = order.back();
  ForEachRow(dims, strides, order, [&](int64_t offset, int64_t position) {
    ReadRow(stored, data + offset * bytes, strides[last], dims[last], values.data() + position);
  });
  return values;
}

void Memory::Store(const TensorSpec& spec, const Order& order, const std::vector<float>& values) {
  TY_CHECK(static_cast<int64_t>(values.size()) == spec.elements());
  cudnnDataType_t stored;
  auto* data = static_cast<char*>(Place(spec, &stored));
  const int64_t bytes = TypeBytes(stored);
  const size_t last = order.back();
  const int64_t count = spec.dims[last];
  std::vector<float> row(static_cast<size_t>(count));
  ForEachRow(spec.dims, spec.strides, order, [&](int64_t offset, int64_t position) {
    std::copy_n(values.begin() + position, count, row.begin());
    if (spec.is_virtual) {
      RoundRow(spec.type, count, row.data());
    } else if (noise_ != 0) {
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t bits = Mix(noise_ + static_cast<uint64_t>(position + i));
        if (bits % 4 == 0) {
          float& value = row[static_cast<size_t>(i)];
          value = Nudge(spec.type, value, bits / 4 % 2 == 0);
        }
      }
    }
    WriteRow(stored, data + offset * bytes, spec.strides[last], count, row.data());
  });
}

}  // namespace trainyard::cuda_on_cpu::cudnn
