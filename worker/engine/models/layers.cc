// Builds the graph of a stack, layer by layer in its order. A stack that spells out a model of the
// zoo gives that model, node for node.
#include "worker/engine/models/layers.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/layers/plan.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

// Adds one layer; returns its output.
class LayerBuilder {
 public:
  LayerBuilder(GraphBuilder& builder, const std::string& name, const std::vector<ValueId>& inputs)
      : builder_(builder), name_(name), inputs_(inputs), x_(inputs[0]) {}

  ValueId operator()(std::monostate) const { return kNoValue; }
  ValueId operator()(const layers::Conv2d& conv) const { return builder_.Conv2d(name_, x_, conv); }
  ValueId operator()(const layers::Linear& linear) const {
    if (!linear.tied_to.empty()) return builder_.TiedLinear(name_, x_, linear.tied_to);
    TY_CHECK(linear.bias || !linear.is_transposed);
    if (linear.is_transposed) return builder_.TransposedLinear(name_, x_, linear.features);
    return builder_.Linear(name_, x_, linear.features, linear.bias);
  }
  ValueId operator()(const layers::BatchNorm& norm) const {
    return builder_.BatchNorm(name_, x_, norm.eps, norm.momentum);
  }
  ValueId operator()(const layers::LayerNorm& norm) const {
    return builder_.LayerNorm(name_, x_, norm.eps);
  }
  ValueId operator()(const layers::Gelu& gelu) const { return builder_.Gelu(x_, gelu); }
  ValueId operator()(const layers::MaxPool& pool) const {
    return builder_.MaxPool(x_, {.kernel = pool.kernel,
                                 .stride = pool.stride,
                                 .padding = pool.padding,
                                 .ceil_mode = pool.ceil_mode});
  }
  ValueId operator()(const layers::AvgPool& pool) const {
    return builder_.AvgPool(x_, {.kernel = pool.kernel,
                                 .stride = pool.stride,
                                 .padding = pool.padding,
                                 .count_padding = pool.count_padding});
  }
  ValueId operator()(const layers::Lrn& lrn) const { return builder_.Lrn(x_, lrn); }
  ValueId operator()(const layers::Dropout& dropout) const {
    return builder_.Dropout(x_, dropout.rate);
  }
  ValueId operator()(const layers::Embedding& embedding) const {
    return builder_.Embedding(name_, x_, embedding.width);
  }
  ValueId operator()(const layers::Attention& attention) const {
    return builder_.Attention(x_, attention.heads);
  }
  // These are kinds that the builder takes exactly as a spec has them.
  template <class Options>
  ValueId operator()(const Options& options) const {
    return builder_.Layer(name_, x_, options);
  }
  ValueId operator()(layers::Plain plain) const {
    switch (plain) {
      case layers::Plain::kRelu:
        return builder_.Relu(x_);
      case layers::Plain::kTanh:
        return builder_.Tanh(x_);
      case layers::Plain::kSigmoid:
        return builder_.Sigmoid(x_);
      case layers::Plain::kAdd: {
        ValueId sum = x_;
        for (size_t i = 1; i < inputs_.size(); ++i) sum = builder_.Add(sum, inputs_[i]);
        return sum;
      }
      case layers::Plain::kConcat:
        return builder_.Concat(inputs_);
      case layers::Plain::kGlobalAvgPool:
        return builder_.GlobalAvgPool(x_);
      case layers::Plain::kFlatten:
        return builder_.Flatten(x_);
      case layers::Plain::kPositionEmbedding:
        return builder_.PositionEmbedding(name_, x_);
    }
    return kNoValue;
  }

 private:
  GraphBuilder& builder_;
  const std::string& name_;
  const std::vector<ValueId>& inputs_;
  const ValueId x_;
};

}  // namespace

absl::StatusOr<Graph> BuildStack(const layers::Stack& stack) {
  GraphBuilder builder = stack.vocabulary > 0
                             ? GraphBuilder::ForTokens(stack.input[0], stack.vocabulary)
                             : GraphBuilder(stack.input);
  absl::flat_hash_map<absl::string_view, ValueId> outputs = {
      {layers::kSampleName, builder.input()}};
  ValueId last = builder.input();
  for (const layers::Layer& layer : stack.layers) {
    std::vector<ValueId> inputs;
    for (const std::string& name : layer.from) inputs.push_back(outputs.at(name));
    if (inputs.empty()) inputs.push_back(last);
    last = std::visit(LayerBuilder(builder, layer.name, inputs), layer.kind);
    if (!layer.name.empty()) outputs[layer.name] = last;
  }
  builder.SoftmaxCrossEntropy(last);
  return std::move(builder).Build();
}

absl::StatusOr<Graph> BuildLayers(const layers::Stack& stack) {
  std::vector<FieldViolation> violations;
  const layers::StackPlan plan = layers::PlanStack(stack, "model.layers", violations);
  if (!violations.empty()) return InvalidFields(violations);
  if (stack.layers.empty()) {
    return absl::InvalidArgumentError("model.layers.stack is empty; expected at least one layer");
  }
  layers::Stack named = stack;
  for (size_t i = 0; i < plan.layers.size(); ++i) named.layers[i].name = plan.layers[i].name;
  return BuildStack(named);
}

}  // namespace trainyard::engine
