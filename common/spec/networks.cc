// Converts models, with one case for each network.
#include "common/spec/networks.h"

#include <cstdint>
#include <vector>

#include "common/spec/layers.h"

namespace trainyard::spec {
namespace {

networks::Stem StemOf(v1::Stem stem) {
  return stem == v1::STEM_CIFAR ? networks::Stem::kCifar : networks::Stem::kImagenet;
}

std::vector<int64_t> Numbers(const google::protobuf::RepeatedField<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

networks::MlpSpec ToNetwork(const v1::MlpModel& mlp) {
  return {.input = Numbers(mlp.input()), .hidden = Numbers(mlp.hidden()), .classes = mlp.classes()};
}

networks::ConvnetSpec ToNetwork(const v1::ConvnetModel& convnet) {
  return {.input = Numbers(convnet.input()),
          .channels = Numbers(convnet.channels()),
          .classes = convnet.classes(),
          .batch_norm = convnet.batch_norm()};
}

networks::ResnetSpec ToNetwork(const v1::ResnetModel& resnet) {
  return {.input = Numbers(resnet.input()),
          .depth = resnet.depth(),
          .stem = StemOf(resnet.stem()),
          .classes = resnet.classes(),
          .zero_init_residual = resnet.zero_init_residual()};
}

networks::WideResnetSpec ToNetwork(const v1::WideResnetModel& wide) {
  return {.input = Numbers(wide.input()),
          .depth = wide.depth(),
          .width = wide.width(),
          .classes = wide.classes()};
}

networks::AlexnetSpec ToNetwork(const v1::AlexnetModel& alexnet) {
  return {.input = Numbers(alexnet.input()),
          .classes = alexnet.classes(),
          .dropout = alexnet.dropout()};
}

networks::VggSpec ToNetwork(const v1::VggModel& vgg) {
  return {.input = Numbers(vgg.input()),
          .depth = vgg.depth(),
          .batch_norm = vgg.batch_norm(),
          .classes = vgg.classes(),
          .dropout = vgg.dropout()};
}

networks::GooglenetSpec ToNetwork(const v1::GooglenetModel& googlenet) {
  return {.input = Numbers(googlenet.input()),
          .stem = StemOf(googlenet.stem()),
          .classes = googlenet.classes(),
          .dropout = googlenet.dropout()};
}

networks::Gpt2Spec ToNetwork(const v1::Gpt2Model& gpt2) {
  return {.layers = gpt2.layers(),
          .heads = gpt2.heads(),
          .width = gpt2.width(),
          .context = gpt2.context(),
          .vocabulary = gpt2.vocabulary(),
          .dropout = gpt2.dropout()};
}

}  // namespace

networks::Network NetworkOf(const v1::ModelSpec& model) {
  switch (model.model_case()) {
    case v1::ModelSpec::kMlp:
      return ToNetwork(model.mlp());
    case v1::ModelSpec::kConvnet:
      return ToNetwork(model.convnet());
    case v1::ModelSpec::kResnet:
      return ToNetwork(model.resnet());
    case v1::ModelSpec::kWideResnet:
      return ToNetwork(model.wide_resnet());
    case v1::ModelSpec::kAlexnet:
      return ToNetwork(model.alexnet());
    case v1::ModelSpec::kVgg:
      return ToNetwork(model.vgg());
    case v1::ModelSpec::kGooglenet:
      return ToNetwork(model.googlenet());
    case v1::ModelSpec::kGpt2:
      return ToNetwork(model.gpt2());
    case v1::ModelSpec::kLayers:
      return ToStack(model.layers());
    case v1::ModelSpec::MODEL_NOT_SET:
      break;
  }
  return layers::Stack{};
}

}  // namespace trainyard::spec
