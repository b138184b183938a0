// Builds graphs of cuDNN's operations. Convolutions and attention share it.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/dnn/descriptor.h"

namespace trainyard::engine::cuda::dnn {

cudnnDataType_t DataType(Type type);

// A tensor of a graph. `shape` and `strides` are in elements and in the order [N, C, H, W],
// whichever dimension is innermost in memory.
struct Tensor {
  int64_t id = 0;  // unique within the graph, above 0
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  bool is_virtual = false;    // exists only inside the graph
  bool is_temporary = false;  // lies in the workspace
};

// Returns the strides of a packed tensor whose last dimension is innermost.
std::vector<int64_t> PackedStrides(const std::vector<int64_t>& shape);
// Returns the strides of an NHWC image with dimensions [N, C, H, W] and `pixel` elements from pixel
// to pixel.
std::vector<int64_t> ImageStrides(const std::vector<int64_t>& shape, int64_t pixel);
// Returns the bytes from the first element to the end of the last.
int64_t BytesOf(const Tensor& tensor);

// A tensor that an execution binds to memory of the device.
struct Slot {
  int64_t id = 0;
  int64_t bytes = 0;
  // A tensor may be a part of another one. Memory is then bound to that one, by the id of the part
  // that comes first, and this part begins `offset` bytes behind it.
  int64_t whole = id;
  int64_t offset = 0;
};
// A number in host memory that an execution reads.
struct Scalar {
  int64_t id = 0;
  float value = 0;
};

inline constexpr int64_t kWorkspaceAlignment = 256;
constexpr int64_t AlignUp(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// A finalized graph, with everything that it is made of.
struct Graph {
  std::vector<Descriptor> parts;
  Descriptor descriptor;
  std::vector<Slot> slots;
  std::vector<Scalar> scalars;
  // These lie in the workspace after the plan's own memory, each at the next multiple of
  // kWorkspaceAlignment.
  std::vector<Slot> temporaries;

  // Returns the workspace of a plan that itself takes `plan_bytes`.
  int64_t WorkspaceBytes(int64_t plan_bytes) const;
};

// Collects tensors and operations. It keeps the first failure and ignores what follows, so that a
// graph can be written down without a check behind every line.
class GraphBuilder {
 public:
  // Handles stay valid as long as the graph lives.
  using Handle = cudnnBackendDescriptor_t;

  // Adds a tensor. A tensor that has no id gets the next one.
  Handle Add(Tensor tensor, absl::string_view name);
  // Adds a float in host memory, of shape [1, 1, 1, 1].
  Handle AddScalar(float value, absl::string_view name);
  // Adds any descriptor of the graph except a tensor.
  Handle Part(cudnnBackendDescriptorType_t type, absl::string_view name,
              const std::vector<Attribute>& attributes);
  void Operation(cudnnBackendDescriptorType_t type, absl::string_view name,
                 const std::vector<Attribute>& attributes);

  // Adds y = mode(x), or mode(x, b), or x if t and else b, on real numbers in f32.
  void Pointwise(cudnnPointwiseMode_t mode, absl::string_view name, Handle x, Handle b, Handle y,
                 Handle t = nullptr, int64_t axis = -1);
  // Adds dx = dy where x > 0.
  void ReluGradient(absl::string_view name, Handle x, Handle dy, Handle dx);
  // Adds a reduction: y is x reduced over the dimensions in which y has size 1, in f32.
  void Reduce(cudnnReduceTensorOp_t operation, absl::string_view name, Handle x, Handle y);
  // Adds a reshape: y holds the elements of x in other dimensions.
  void Reshape(absl::string_view name, Handle x, Handle y);
  // Adds c = a b, over the last two dimensions, in f32.
  void Matmul(absl::string_view name, Handle a, Handle b, Handle c);

  // Finalizes the graph. `handle` is the device's, or null if there is none.
  absl::StatusOr<Graph> Finish(cudnnHandle_t handle) &&;

 private:
  absl::Status status_;
  int64_t next_id_ = int64_t{1} << 20;  // larger than all ids that callers choose
  Graph graph_;
  std::vector<Handle> operations_;
};

// Returns an attribute whose value is a descriptor of the builder.
inline Attribute Of(cudnnBackendAttributeName_t name, GraphBuilder::Handle descriptor) {
  return Attribute::Descriptors(name, {descriptor});
}

}  // namespace trainyard::engine::cuda::dnn
