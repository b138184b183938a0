// The graph of a model or of a whole training step: values, and nodes that compute them in order.
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
// "[3, 12, 12]".
std::string ShapeString(const Shape& shape);

// Index into Graph::values.
using ValueId = int;
inline constexpr ValueId kNoValue = -1;

enum class Role {
  kInput,              // the batch's inputs
  kLabels,             // the batch's class numbers, int32; [] or [T] of a row
  kParameter,          // trained
  kBuffer,             // running statistics
  kActivation,         // computed forward
  kGradient,           // of the loss with respect to an activation or the input
  kParameterGradient,  // lives in the reduction arena
};

// How a parameter starts, from the job's seed.
struct Initializer {
  enum class Kind {
    kDefault,   // PyTorch's of the layer: see InitializeParameters
    kConstant,  // all are `value`
    kNormal,    // mean 0, standard deviation `value`
    kBegun,     // a backend has set it, and it stays
  };
  Kind kind = Kind::kDefault;
  double value = 0;
};

// What an element of a value must hold; a backend may give it as little room.
enum class Element { kReal, kByte, kBit };

struct Value {
  std::string name;
  Role role = Role::kActivation;
  Shape shape;           // of one row where per_row
  bool per_row = false;  // has a leading row dimension
  // The value with respect to which a gradient is taken.
  ValueId primal = kNoValue;
  Initializer initializer = {};  // of a parameter
  Element element = Element::kReal;
  // The weight of a linear layer lies as [in, out], where others lie as [out, in].
  bool is_transposed = false;

  int64_t Elements(int64_t rows) const { return ElementCount(shape) * (per_row ? rows : 1); }
};

// The list of all ops is ops.def. What each of them reads and writes is told in ops/<family>.cc.
enum class OpKind {
#define TY_OP(kind, name) k##kind,
#include "worker/engine/graph/ops.def"
#undef TY_OP
};

struct ConvAttributes {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;  // 1: dense
  int64_t groups = 1;
  // Merged by a pass: so many weights, the output channels of one after those of the other; then as
  // many biases, or none.
  int64_t weights = 1;
};

struct PoolAttributes {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  bool count_padding = true;  // in the divisor of an average
};

struct DropoutAttributes {
  double rate = 0.5;   // of the elements that become zero
  uint32_t layer = 0;  // numbers the dropouts of a model, so that each draws other elements
};

struct ConcatAttributes {
  // By input, or empty: whether what computes it may write it where it belongs in the output.
  std::vector<bool> placed = {};
};

struct SliceAttributes {
  int64_t first_channel = 0;  // in the input
  bool is_view = false;       // all who read it may do so in the input
};

struct LossAttributes {
  double label_smoothing = 0;
};

struct NormAttributes {
  double eps = 1e-5;
  double momentum = 0.1;         // share of the new statistics, as in PyTorch
  bool batch_statistics = true;  // false: normalise by those among the inputs
  // Places among the inputs of what passes fused into the node; 0: nothing.
  int residual = 0;         // batch_norm: added to y before it is rectified
  int bias = 0;             // gradient: tells with x what the rectifier let through
  int mask = 0;             // gradient: tells the same, one bit an element
  int second_gradient = 0;  // gradient: added to dy
  int addend = 0;           // gradient: added to dx
};

struct Node {
  OpKind op = OpKind::kRelu;
  std::string name;  // of the layer
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // kNoValue: not wanted
  // Options that a node has exactly as a layer of a spec has them are a layers::Kind.
  std::variant<std::monostate, ConvAttributes, PoolAttributes, NormAttributes, DropoutAttributes,
               ConcatAttributes, SliceAttributes, LossAttributes, layers::Kind>
      attributes;
  // Fused by a pass. conv2d, linear, batch_norm: the output is rectified. batch_norm_gradient: the
  // incoming gradient counts only where the output was positive. max_pool: its index tells windows
  // whose maximum is not positive, and max_pool_gradient gives them no gradient.
  bool relu = false;
  // Each of several layers that share a parameter makes a part of its gradient. `adds`: this node
  // adds to what an earlier one wrote. `is_partial`: a later one adds to it.
  bool adds = false;
  bool is_partial = false;
  // Outputs that are written over an input.
  struct Overwrite {
    int output = 0;
    int input = 0;
  };
  std::vector<Overwrite> overwrites = {};

  // The input over which this output is written; -1: over none.
  int OverwrittenBy(int output) const;

  const ConvAttributes& conv() const { return std::get<ConvAttributes>(attributes); }
  const PoolAttributes& pool() const { return std::get<PoolAttributes>(attributes); }
  const NormAttributes& norm() const { return std::get<NormAttributes>(attributes); }
  const DropoutAttributes& dropout() const { return std::get<DropoutAttributes>(attributes); }
  const ConcatAttributes& concat() const { return std::get<ConcatAttributes>(attributes); }
  const SliceAttributes& slice() const { return std::get<SliceAttributes>(attributes); }
  // Such as layer<layers::Lrn>().
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
  ValueId loss = kNoValue;     // [1], mean over the labels
  ValueId correct = kNoValue;  // [1], labels at which the largest logit is
  // The input is token numbers in [0, vocabulary); 0: real numbers.
  int64_t vocabulary = 0;
  // For a stage of a pipeline (split.h): the input is another stage's output, whose gradient is
  // wanted; and the value that leaves in the place of a loss, kNoValue for the last stage.
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

// Smallest room for `count` elements, where real numbers take `real_bytes`.
int64_t BytesOf(Element element, int64_t count, int64_t real_bytes);

// "conv2d", "max_pool_gradient".
absl::string_view OpName(OpKind op);

}  // namespace trainyard::engine
