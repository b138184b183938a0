// Short ways to build operation graphs, for the tests of the emulated cuDNN.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trainyard::cuda_on_cpu {

// One attribute to set.
struct Attribute {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;
};
Attribute Ints(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values);
Attribute Int(cudnnBackendAttributeName_t name, int64_t value);
Attribute Flag(cudnnBackendAttributeName_t name, bool value);
// Returns the value of an enumeration.
Attribute Choice(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int value);
Attribute Real(cudnnBackendAttributeName_t name, double value);
Attribute Refer(cudnnBackendAttributeName_t name,
                const std::vector<cudnnBackendDescriptor_t>& descriptors);
Attribute Text(cudnnBackendAttributeName_t name, const std::string& text);
Attribute Pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& pointers);

struct TensorOptions {
  std::vector<int64_t> strides = {};  // empty: packed, the last dimension innermost
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false;
  bool is_by_value = false;
  int64_t alignment = 4;
};

// A handle on a stream, with descriptors that live as long as it does. The test fails if a call
// that should succeed does not.
class Cudnn {
 public:
  using Descriptor = cudnnBackendDescriptor_t;

  Cudnn();
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  Descriptor Create(cudnnBackendDescriptorType_t type);
  // Sets all attributes and finalizes; returns the status of the first call that fails.
  cudnnStatus_t Try(cudnnBackendDescriptorType_t type, const std::vector<Attribute>& attributes,
                    Descriptor* made = nullptr);
  Descriptor Make(cudnnBackendDescriptorType_t type, const std::vector<Attribute>& attributes);

  Descriptor Tensor(int64_t id, const std::vector<int64_t>& dims,
                    const TensorOptions& options = {});
  // An operation that has no attributes but descriptors.
  Descriptor Operation(cudnnBackendDescriptorType_t type,
                       const std::map<cudnnBackendAttributeName_t, Descriptor>& parts);
  // Adds y = mode(x, b, t). Operands may be null.
  Descriptor Pointwise(cudnnPointwiseMode_t mode, Descriptor y, Descriptor x,
                       Descriptor b = nullptr, Descriptor t = nullptr, int64_t axis = 0);

  Descriptor Graph(const std::vector<Descriptor>& operations);
  // A finalized configuration.
  Descriptor Config(Descriptor graph, int64_t engine);
  // A finalized plan of this engine.
  Descriptor Plan(Descriptor graph, int64_t engine = 0);
  cudnnStatus_t TryPlan(Descriptor graph, int64_t engine);
  // Executes the plan and waits.
  cudnnStatus_t Execute(Descriptor plan, const std::map<int64_t, void*>& tensors,
                        void* workspace = nullptr);
  // Does all of the above for engine 0, and fails the test on any error.
  void Run(const std::vector<Descriptor>& operations, const std::map<int64_t, void*>& tensors);

  cudnnHandle_t handle() const { return handle_; }
  cudaStream_t stream() const { return stream_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<Descriptor> descriptors_;
};

// Returns the message of the last failure.
std::string LastError();

// Deterministic numbers between -1 and 1, multiples of 1/64: exact in all types.
std::vector<float> Numbers(size_t count, uint64_t seed);

}  // namespace trainyard::cuda_on_cpu
