// Tensors of operation graphs, and their elements during one execution.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"

namespace trainyard::cuda_on_cpu::cudnn {

// The contents of a tensor descriptor.
struct TensorSpec {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;  // in elements
  int64_t alignment = 1;         // in bytes
  bool is_virtual = false;
  bool is_by_value = false;

  size_t rank() const { return dims.size(); }
  int64_t elements() const;
  // The elements from the first to the last one in memory, both included.
  int64_t span() const;
};

bool operator==(const TensorSpec& left, const TensorSpec& right);

// The bytes of one element; 0 for types that the emulation does not have.
int64_t TypeBytes(cudnnDataType_t type);

// Checks ranks, dimensions, strides, type and alignment.
cudnnStatus_t CheckTensor(const Descriptor& descriptor);
// The contents of a finalized tensor descriptor.
TensorSpec SpecOf(const Descriptor& descriptor);

// Dimensions, outermost first. Loads and stores go over elements in such an order.
using Order = std::vector<size_t>;
Order NaturalOrder(size_t rank);
// The order in which a tensor lies in memory.
Order MemoryOrder(const TensorSpec& spec);

// The elements of all tensors of one execution. Virtual tensors are stored here, in f32 rounded to
// their type.
class Memory {
 public:
  // With `noise` other than 0, about every fourth element that is stored outside moves by one unit
  // in the last place of its type. `noise` decides which ones move, and in which direction.
  explicit Memory(uint64_t noise) : noise_(noise) {}

  void Bind(int64_t id, void* data) { bound_[id] = data; }

  // Returns all elements in the given order, in f32, dense. `shape` has the dimensions to go over
  // where they differ from the tensor's own; dimensions that are 1 in the tensor are repeated.
  // Empty: its own.
  std::vector<float> Load(const TensorSpec& spec, const Order& order,
                          const std::vector<int64_t>& shape = {});
  std::vector<float> Load(const TensorSpec& spec) { return Load(spec, NaturalOrder(spec.rank())); }
  void Store(const TensorSpec& spec, const Order& order, const std::vector<float>& values);
  void Store(const TensorSpec& spec, const std::vector<float>& values) {
    Store(spec, NaturalOrder(spec.rank()), values);
  }
  // Returns the first element, for a scalar.
  double Scalar(const TensorSpec& spec) { return static_cast<double>(Load(spec).front()); }

 private:
  // The address of its first element, and the type in which elements are stored.
  void* Place(const TensorSpec& spec, cudnnDataType_t* stored);

  uint64_t noise_;
  std::map<int64_t, void*> bound_;
  std::map<int64_t, std::vector<float>> virtual_;
};

}  // namespace trainyard::cuda_on_cpu::cudnn
