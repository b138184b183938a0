// Converts layers, with one case for each kind. The proto messages are what users write; the
// structs are what the arithmetic of shapes and the engine work on.
#include "common/spec/layers.h"

#include <vector>

#include "common/base/errors.h"
#include "common/layers/plan.h"

namespace trainyard::spec {
namespace {

layers::Conv2d ToLayer(const v1::Conv2dLayer& conv) {
  return {.channels = conv.channels(),
          .kernel = conv.kernel(),
          .stride = conv.stride(),
          .padding = conv.padding(),
          .dilation = conv.dilation(),
          .groups = conv.groups(),
          .bias = conv.bias()};
}

layers::MaxPool ToLayer(const v1::MaxPoolLayer& pool) {
  return {.kernel = pool.kernel(),
          .stride = pool.stride(),
          .padding = pool.padding(),
          .ceil_mode = pool.ceil_mode()};
}

layers::AvgPool ToLayer(const v1::AvgPoolLayer& pool) {
  return {.kernel = pool.kernel(),
          .stride = pool.stride(),
          .padding = pool.padding(),
          .count_padding = pool.count_padding()};
}

layers::Lrn ToLayer(const v1::LrnLayer& lrn) {
  return {.size = lrn.size(), .alpha = lrn.alpha(), .beta = lrn.beta(), .k = lrn.k()};
}

layers::Kind ToKind(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kConv2D:
      return ToLayer(layer.conv2d());
    case v1::Layer::kLinear:
      return layers::Linear{.features = layer.linear().features(), .bias = layer.linear().bias()};
    case v1::Layer::kBatchNorm:
      return layers::BatchNorm{.eps = layer.batch_norm().eps(),
                               .momentum = layer.batch_norm().momentum()};
    case v1::Layer::kLayerNorm:
      return layers::LayerNorm{.eps = layer.layer_norm().eps()};
    case v1::Layer::kGroupNorm:
      return layers::GroupNorm{.groups = layer.group_norm().groups(),
                               .eps = layer.group_norm().eps()};
    case v1::Layer::kRelu:
      return layers::Plain::kRelu;
    case v1::Layer::kTanh:
      return layers::Plain::kTanh;
    case v1::Layer::kSigmoid:
      return layers::Plain::kSigmoid;
    case v1::Layer::kGelu:
      return layers::Gelu{.tanh = layer.gelu().tanh()};
    case v1::Layer::kAdd:
      return layers::Plain::kAdd;
    case v1::Layer::kConcat:
      return layers::Plain::kConcat;
    case v1::Layer::kMaxPool:
      return ToLayer(layer.max_pool());
    case v1::Layer::kAvgPool:
      return ToLayer(layer.avg_pool());
    case v1::Layer::kGlobalAvgPool:
      return layers::Plain::kGlobalAvgPool;
    case v1::Layer::kLrn:
      return ToLayer(layer.lrn());
    case v1::Layer::kUpsample:
      return layers::Upsample{.scale = layer.upsample().scale()};
    case v1::Layer::kDropout:
      return layers::Dropout{.rate = layer.dropout().rate()};
    case v1::Layer::kFlatten:
      return layers::Plain::kFlatten;
    case v1::Layer::kEmbedding:
      return layers::Embedding{.width = layer.embedding().width()};
    case v1::Layer::kPositionEmbedding:
      return layers::Plain::kPositionEmbedding;
    case v1::Layer::kAttention:
      return layers::Attention{.heads = layer.attention().heads()};
    case v1::Layer::KIND_NOT_SET:
      break;
  }
  return std::monostate();
}

}  // namespace

layers::Stack ToStack(const v1::LayersModel& model) {
  layers::Stack stack;
  stack.input.assign(model.input().begin(), model.input().end());
  stack.vocabulary = model.vocabulary();
  for (const v1::Layer& layer : model.stack()) {
    stack.layers.push_back(
        {layer.name(), {layer.from().begin(), layer.from().end()}, ToKind(layer)});
  }
  return stack;
}

int64_t ClassesOf(const v1::LayersModel& model) {
  std::vector<FieldViolation> violations;
  const layers::StackPlan plan = layers::PlanStack(ToStack(model), "", violations);
  return violations.empty() ? plan.classes : 0;
}

}  // namespace trainyard::spec
