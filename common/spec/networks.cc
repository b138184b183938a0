// Writes out the networks as stacks of layers. Each network has a function, which adds the layers
// in their order.
#include "common/spec/networks.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/spec/layers.h"

namespace trainyard::spec {
namespace {

using layers::Plain;

// Adds layers, and returns the names under which later layers read them.
class Writer {
 public:
  template <typename Model>
  explicit Writer(const Model& model) {
    stack_.input.assign(model.input().begin(), model.input().end());
  }
  Writer(int64_t context, int64_t vocabulary) {
    stack_.input = {context};
    stack_.vocabulary = vocabulary;
  }

  std::string sample() const { return std::string(layers::kSampleName); }
  std::string Add(layers::Kind kind, std::vector<std::string> from) {
    std::string name = absl::StrCat("l", stack_.layers.size());
    stack_.layers.push_back({name, std::move(from), std::move(kind)});
    return name;
  }
  std::string Add(layers::Kind kind, const std::string& from) {
    return Add(std::move(kind), std::vector<std::string>{from});
  }
  std::string Relu(const std::string& x) { return Add(Plain::kRelu, x); }
  std::string BatchNorm(const std::string& x) { return Add(layers::BatchNorm(), x); }
  std::string Linear(const std::string& x, int64_t features) {
    return Add(layers::Linear{.features = features}, x);
  }
  // Adds a convolution whose output has the input's height and width, divided by the stride.
  std::string Conv(const std::string& x, int64_t channels, int64_t kernel, int64_t stride = 1) {
    return Add(
        layers::Conv2d{
            .channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2},
        x);
  }
  std::string ConvNorm(const std::string& x, int64_t channels, int64_t kernel, int64_t stride = 1) {
    return BatchNorm(Conv(x, channels, kernel, stride));
  }

  layers::Stack Finish() && { return std::move(stack_); }

 private:
  layers::Stack stack_ = {.layers = {}};
};

layers::Stack Network(const v1::MlpModel& mlp) {
  Writer writer(mlp);
  std::string x = writer.Add(Plain::kFlatten, writer.sample());
  for (const int64_t width : mlp.hidden()) x = writer.Relu(writer.Linear(x, width));
  writer.Linear(x, mlp.classes());
  return std::move(writer).Finish();
}

layers::Stack Network(const v1::ConvnetModel& convnet) {
  Writer writer(convnet);
  std::string x = writer.sample();
  for (const int64_t channels : convnet.channels()) {
    x = writer.Conv(x, channels, 3);
    if (convnet.batch_norm()) x = writer.BatchNorm(x);
    x = writer.Add(layers::MaxPool{.kernel = 2}, writer.Relu(x));
  }
  writer.Linear(writer.Add(Plain::kFlatten, x), convnet.classes());
  return std::move(writer).Finish();
}

struct ResnetFamily {
  bool has_bottleneck = false;
  int64_t channels = 64;
  std::vector<int64_t> blocks;  // of each stage
};

ResnetFamily FamilyOf(int64_t depth) {
  switch (depth) {
    case 18:
      return {false, 64, {2, 2, 2, 2}};
    case 34:
      return {false, 64, {3, 4, 6, 3}};
    case 50:
      return {true, 64, {3, 4, 6, 3}};
    case 101:
      return {true, 64, {3, 4, 23, 3}};
    default:
      return {false, 16, std::vector<int64_t>(3, (depth - 2) / 6)};
  }
}

layers::Stack Network(const v1::ResnetModel& resnet) {
  const ResnetFamily family = FamilyOf(resnet.depth());
  Writer writer(resnet);
  std::string x;
  if (resnet.stem() == v1::STEM_CIFAR) {
    x = writer.Relu(writer.ConvNorm(writer.sample(), family.channels, 3));
  } else {
    x = writer.Relu(writer.ConvNorm(writer.sample(), family.channels, 7, 2));
    x = writer.Add(layers::MaxPool{.kernel = 3, .stride = 2, .padding = 1}, x);
  }
  int64_t in = family.channels;
  for (size_t stage = 0; stage < family.blocks.size(); ++stage) {
    const int64_t width = family.channels << stage;
    const int64_t out = family.has_bottleneck ? 4 * width : width;
    for (int64_t i = 0; i < family.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      std::string y = x;
      if (family.has_bottleneck) {
        y = writer.Relu(writer.ConvNorm(y, width, 1));
        y = writer.Relu(writer.ConvNorm(y, width, 3, stride));
        y = writer.ConvNorm(y, out, 1);
      } else {
        y = writer.Relu(writer.ConvNorm(y, width, 3, stride));
        y = writer.ConvNorm(y, out, 3);
      }
      if (stride != 1 || in != out) x = writer.ConvNorm(x, out, 1, stride);
      in = out;
      x = writer.Relu(writer.Add(Plain::kAdd, {y, x}));
    }
  }
  x = writer.Add(Plain::kFlatten, writer.Add(Plain::kGlobalAvgPool, x));
  writer.Linear(x, resnet.classes());
  return std::move(writer).Finish();
}

layers::Stack Network(const v1::WideResnetModel& wide) {
  constexpr int64_t kChannels = 16;
  Writer writer(wide);
  std::string x = writer.Conv(writer.sample(), kChannels, 3);
  int64_t in = kChannels;
  for (int stage = 0; stage < 3; ++stage) {
    const int64_t out = (kChannels * wide.width()) << stage;
    for (int64_t i = 0; i < (wide.depth() - 4) / 6; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const std::string seen = writer.Relu(writer.BatchNorm(x));
      std::string y = writer.Conv(seen, out, 3, stride);
      y = writer.Conv(writer.Relu(writer.BatchNorm(y)), out, 3);
      if (in != out) x = writer.Conv(seen, out, 1, stride);
      in = out;
      x = writer.Add(Plain::kAdd, {y, x});
    }
  }
  x = writer.Relu(writer.BatchNorm(x));
  x = writer.Add(Plain::kFlatten, writer.Add(Plain::kGlobalAvgPool, x));
  writer.Linear(x, wide.classes());
  return std::move(writer).Finish();
}

layers::Stack Network(const v1::AlexnetModel& alexnet) {
  const layers::MaxPool pool = {.kernel = 3, .stride = 2};
  Writer writer(alexnet);
  std::string x = writer.Add(
      layers::Conv2d{.channels = 64, .kernel = 11, .stride = 4, .padding = 2}, writer.sample());
  x = writer.Add(pool, writer.Relu(x));
  x = writer.Add(pool, writer.Relu(writer.Conv(x, 192, 5)));
  x = writer.Relu(writer.Conv(x, 384, 3));
  x = writer.Relu(writer.Conv(x, 256, 3));
  x = writer.Add(pool, writer.Relu(writer.Conv(x, 256, 3)));
  x = writer.Add(Plain::kFlatten, x);
  for (int i = 0; i < 2; ++i) {
    x = writer.Add(layers::Dropout{.rate = alexnet.dropout()}, x);
    x = writer.Relu(writer.Linear(x, 4096));
  }
  writer.Linear(x, alexnet.classes());
  return std::move(writer).Finish();
}

layers::Stack Network(const v1::VggModel& vgg) {
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  // These are the numbers of convolutions in each of the first two stages and in each of the
  // others: configurations A, B, D and E of the paper.
  const int first = vgg.depth() == 11 ? 1 : 2;
  const int last = vgg.depth() == 19 ? 4 : vgg.depth() == 16 ? 3 : 2;
  Writer writer(vgg);
  std::string x = writer.sample();
  for (int stage = 0; stage < 5; ++stage) {
    for (int i = 0; i < (stage < 2 ? first : last); ++i) {
      x = writer.Conv(x, kChannels[stage], 3);
      if (vgg.batch_norm()) x = writer.BatchNorm(x);
      x = writer.Relu(x);
    }
    x = writer.Add(layers::MaxPool{.kernel = 2}, x);
  }
  x = writer.Add(Plain::kFlatten, x);
  for (int i = 0; i < 2; ++i) {
    x = writer.Relu(writer.Linear(x, 4096));
    x = writer.Add(layers::Dropout{.rate = vgg.dropout()}, x);
  }
  writer.Linear(x, vgg.classes());
  return std::move(writer).Finish();
}

// The channels of a module of GoogLeNet, as in table 1 of the paper.
struct Inception {
  int64_t ones;            // 1x1
  int64_t reduce3, three;  // 1x1, then 3x3
  int64_t reduce5, five;   // 1x1, then 5x5
  int64_t pool;            // max_pool 3x3, then 1x1
};

// The branches of the two forms of the network compute the same in different kernels and orders. In
// both forms one value enters the module and one leaves it.
std::string AddInception(Writer& writer, const std::string& x, const Inception& it) {
  const auto conv = [&writer](const std::string& from, int64_t channels, int64_t kernel) {
    return writer.Relu(writer.ConvNorm(from, channels, kernel));
  };
  const std::string pooled = writer.Add(layers::MaxPool{.kernel = 3, .stride = 1, .padding = 1}, x);
  const std::string ones = conv(x, it.ones, 1);
  const std::string three = conv(conv(x, it.reduce3, 1), it.three, 3);
  const std::string five = conv(conv(x, it.reduce5, 1), it.five, 3);
  return writer.Add(Plain::kConcat, {ones, three, five, conv(pooled, it.pool, 1)});
}

layers::Stack Network(const v1::GooglenetModel& googlenet) {
  static const auto& stages = *new std::vector<std::vector<Inception>>{
      {{64, 96, 128, 16, 32, 32}, {128, 128, 192, 32, 96, 64}},
      {{192, 96, 208, 16, 48, 64},
       {160, 112, 224, 24, 64, 64},
       {128, 128, 256, 24, 64, 64},
       {112, 144, 288, 32, 64, 64},
       {256, 160, 320, 32, 128, 128}},
      {{256, 160, 320, 32, 128, 128}, {384, 192, 384, 48, 128, 128}}};
  const bool is_of_cifar = googlenet.stem() == v1::STEM_CIFAR;
  Writer writer(googlenet);
  const auto shrink = [&writer, is_of_cifar](const std::string& x, int64_t kernel) {
    return writer.Add(is_of_cifar
                          ? layers::MaxPool{.kernel = 3, .stride = 2, .padding = 1}
                          : layers::MaxPool{.kernel = kernel, .stride = 2, .ceil_mode = true},
                      x);
  };
  std::string x = writer.sample();
  if (is_of_cifar) {
    x = writer.Relu(writer.ConvNorm(x, 192, 3));
  } else {
    x = shrink(writer.Relu(writer.ConvNorm(x, 64, 7, 2)), 3);
    x = writer.Relu(writer.ConvNorm(x, 64, 1));
    x = shrink(writer.Relu(writer.ConvNorm(x, 192, 3)), 3);
  }
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const Inception& it : stages[stage]) x = AddInception(writer, x, it);
    if (stage + 1 < stages.size()) x = shrink(x, stage == 0 ? 3 : 2);
  }
  x = writer.Add(Plain::kFlatten, writer.Add(Plain::kGlobalAvgPool, x));
  x = writer.Add(layers::Dropout{.rate = googlenet.dropout()}, x);
  writer.Linear(x, googlenet.classes());
  return std::move(writer).Finish();
}

layers::Stack Network(const v1::Gpt2Model& gpt2) {
  Writer writer(gpt2.context(), gpt2.vocabulary());
  const auto add_half = [&](const std::string& x, const std::string& y) {
    return writer.Add(Plain::kAdd, {x, writer.Add(layers::Dropout{.rate = gpt2.dropout()}, y)});
  };
  std::string x = writer.Add(layers::Embedding{.width = gpt2.width()}, writer.sample());
  x = writer.Add(Plain::kPositionEmbedding, x);
  x = writer.Add(layers::Dropout{.rate = gpt2.dropout()}, x);
  std::string y = writer.Linear(writer.Add(layers::LayerNorm(), x), 3 * gpt2.width());
  y = writer.Add(layers::Attention{.heads = gpt2.heads()}, y);
  x = add_half(x, writer.Linear(y, gpt2.width()));
  y = writer.Linear(writer.Add(layers::LayerNorm(), x), 4 * gpt2.width());
  x = add_half(x, writer.Linear(writer.Add(layers::Gelu(), y), gpt2.width()));
  writer.Linear(writer.Add(layers::LayerNorm(), x), gpt2.vocabulary());
  return std::move(writer).Finish();
}

}  // namespace

layers::Stack NetworkOf(const v1::ModelSpec& model) {
  switch (model.model_case()) {
    case v1::ModelSpec::kMlp:
      return Network(model.mlp());
    case v1::ModelSpec::kConvnet:
      return Network(model.convnet());
    case v1::ModelSpec::kResnet:
      return Network(model.resnet());
    case v1::ModelSpec::kWideResnet:
      return Network(model.wide_resnet());
    case v1::ModelSpec::kAlexnet:
      return Network(model.alexnet());
    case v1::ModelSpec::kVgg:
      return Network(model.vgg());
    case v1::ModelSpec::kGooglenet:
      return Network(model.googlenet());
    case v1::ModelSpec::kGpt2:
      return Network(model.gpt2());
    case v1::ModelSpec::kLayers:
      return ToStack(model.layers());
    case v1::ModelSpec::MODEL_NOT_SET:
      break;
  }
  return {.layers = {}};
}

}  // namespace trainyard::spec
