// Defines the graph of a model or of a whole training step: values, and nodes that compute them in
// order.
//
// A model is a plain function that builds a forward graph with graph_builder.h. step_graph.h turns
// it into a training step or an evaluation step. Nothing here knows a device or a number of rows:
// shapes of per-row values leave out the leading row dimension, so one graph serves every batch
// size.
//
// A row is features [F], an image [C, H, W] or a sequence [T, C]: one vector at each of T
// positions. Sequences begin as the input of a token model, [T] numbers below Graph::vocabulary,
// which only an embedding reads; their labels are [T] too, and the loss is the mean over rows and
// positions.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/layers/stack.h"

namespace trainyard::engine {

using Shape = std::vector<int64_t>;

int64_t ElementCount(const Shape& shape);
// Returns a shape as text: "[3, 12, 12]".
std::string ShapeString(const Shape& shape);

// Index into Graph::values.
using ValueId = int;
inline constexpr ValueId kNoValue = -1;

enum class Role {
  kInput,              // the inputs of a batch
  kLabels,             // the class numbers of a batch, int32; [] or [T] for a row
  kParameter,          // trained
  kBuffer,             // running statistics
  kActivation,         // computed forward
  kGradient,           // of the loss with respect to an activation or the input
  kParameterGradient,  // lives in the reduction arena
};

// The initial value of a parameter, from the job's seed.
struct Initializer {
  enum class Kind {
    kDefault,   // PyTorch's default for the layer; see InitializeParameters
    kConstant,  // all are `value`
    kNormal,    // mean 0, standard deviation `value`
    kBegun,     // a backend has set it, and it stays so
  };
  Kind kind = Kind::kDefault;
  double value = 0;
};

// The kind of element that a value needs. A backend may store the value in elements of that kind.
enum class Element { kReal, kByte, kBit };

struct Value {
  std::string name;
  Role role = Role::kActivation;
  Shape shape;           // of one row if per_row
  bool per_row = false;  // has a leading row dimension
  // The value with respect to which a gradient is taken.
  ValueId primal = kNoValue;
  Initializer initializer = {};  // of a parameter
  Element element = Element::kReal;
  // True if the weight of a linear layer is stored as [in, out], and not as [out, in].
  bool is_transposed = false;

  int64_t Elements(int64_t rows) const { return ElementCount(shape) * (per_row ? rows : 1); }
};

// The list of all ops is ops.def. ops/<family>.cc says what each of them reads and writes.
enum class OpKind {
#define TY_OP(kind, name) k##kind,
#include "worker/engine/graph/ops.def"
#undef TY_OP
};

struct ConvAttributes {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;  // 1 means dense
  int64_t groups = 1;
  // A pass may merge convolutions. There are then this many weights, whose output channels follow
  // each other, and as many biases, or none.
  int64_t weights = 1;
};

struct PoolAttributes {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  bool count_padding = true;  // counts in the divisor of an average
};

struct DropoutAttributes {
  double rate = 0.5;   // the share of elements that become zero
  uint32_t layer = 0;  // numbers the dropouts of a model, so that each draws other elements
};

struct ConcatAttributes {
  // For each input: true if the node that computes it may write it directly into the output. It may
  // be empty.
  std::vector<bool> placed = {};
};

struct SliceAttributes {
  int64_t first_channel = 0;  // in the input
  bool is_view = false;       // true if all readers may read it in the input
};

struct LossAttributes {
  double label_smoothing = 0;
};

struct NormAttributes {
  double eps = 1e-5;
  double momentum = 0.1;         // share of the new statistics, as in PyTorch
  bool batch_statistics = true;  // if false, normalises by the statistics among the inputs
  // These are places among the inputs of what passes fused into the node. 0 means nothing.
  int residual = 0;         // batch_norm: added to y before it is rectified
  int bias = 0;             // gradient: shows together with x what the rectifier let through
  int mask = 0;             // gradient: shows the same, with one bit for each element
  int second_gradient = 0;  // gradient: added to dy
  int addend = 0;           // gradient: added to dx
};

struct Node {
  OpKind op = OpKind::kRelu;
  std::string name;  // the name of the layer
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // kNoValue for an output that is not needed
  // Options that a node has exactly as a layer of a spec has them are a layers::Kind.
  std::variant<std::monostate, ConvAttributes, PoolAttributes, NormAttributes, DropoutAttributes,
               ConcatAttributes, SliceAttributes, LossAttributes, layers::Kind>
      attributes;
  // True if a pass has fused a rectifier. conv2d, linear, batch_norm: the output is rectified.
  // batch_norm_gradient: the incoming gradient counts only where the output was positive. max_pool:
  // its index marks windows whose maximum is not positive, and max_pool_gradient gives them no
  // gradient.
  bool relu = false;
  // If several layers share a parameter, each computes a part of its gradient. `adds` means that
  // this node adds to what an earlier one wrote, and `is_partial` that a later one adds to it.
  bool adds = false;
  bool is_partial = false;
  // Outputs that are written over an input.
  struct Overwrite {
    int output = 0;
    int input = 0;
  };
  std::vector<Overwrite> overwrites = {};

  // Returns the input over which this output is written, or -1 if there is none.
  int OverwrittenBy(int output) const;

  const ConvAttributes& conv() const { return std::get<ConvAttributes>(attributes); }
  const PoolAttributes& pool() const { return std::get<PoolAttributes>(attributes); }
  const NormAttributes& norm() const { return std::get<NormAttributes>(attributes); }
  const DropoutAttributes& dropout() const { return std::get<DropoutAttributes>(attributes); }
  const ConcatAttributes& concat() const { return std::get<ConcatAttributes>(attributes); }
  const SliceAttributes& slice() const { return std::get<SliceAttributes>(attributes); }
  // Returns options such as layer<layers::Lrn>().
  template <class Layer>
  const Layer& layer() const {
    return std::get<Layer>(std::get<layers::Kind>(attributes));
  }
  const LossAttributes& loss() const { return std::get<LossAttributes>(attributes); }
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;  // in an order in which they can run
  ValueId input = kNoValue;
  ValueId labels = kNoValue;
  ValueId logits = kNoValue;   // [rows, classes] or [rows, T, classes]
  ValueId loss = kNoValue;     // [1], the mean over the labels
  ValueId correct = kNoValue;  // [1], the number of labels whose logit is the largest
  // The input is token numbers in [0, vocabulary). 0 means that it is real numbers.
  int64_t vocabulary = 0;
  // For a stage of a pipeline (split.h): true if the input is another stage's output, whose
  // gradient is needed; and the value that leaves the stage instead of a loss, which is kNoValue
  // for the last stage.
  bool has_stage_input = false;
  ValueId stage_output = kNoValue;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  ValueId Add(Value value);

  const Shape& input_shape() const { return value(input).shape; }
  int64_t classes() const { return value(logits).shape.back(); }
  int64_t labels_per_row() const { return ElementCount(value(labels).shape); }
  bool has_loss() const { return loss != kNoValue; }
};

// Returns the bytes of `count` elements, of which real numbers take `real_bytes` each.
int64_t BytesOf(Element element, int64_t count, int64_t real_bytes);

// Returns "conv2d", "max_pool_gradient" and so on.
absl::string_view OpName(OpKind op);

}  // namespace trainyard::engine
