#include "worker/run_dir/layers_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/layers/plan.h"

namespace trainyard::run_dir {
namespace {

// The limits of proto/trainyard/v1/training.proto.
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxWindow = 1024;
constexpr int64_t kMaxFeatures = 16'777'216;
constexpr int64_t kMaxTokens = 1'048'576;
constexpr size_t kMaxLayers = 10'000;
constexpr double kMaxLrn = 1000;

// A number from `min` to `max`.
void Number(FieldReader& reader, absl::string_view key, double& value, double min, double max) {
  double read = value;
  if (!reader.Double(key, read)) return;
  if (read >= min && read <= max) {  // not a number is neither
    value = read;
  } else {
    reader.Violate(key, absl::StrCat("is ", read, "; expected a number from ", min, " to ", max));
  }
}

// As above, without `min` itself.
void NumberOver(FieldReader& reader, absl::string_view key, double& value, double min, double max) {
  if (double read = value; reader.Double(key, read) && read == min) {
    reader.Violate(key, absl::StrCat("is ", read, "; expected a number over ", min));
  }
  Number(reader, key, value, min, max);
}

layers::Kind ReadConv2d(FieldReader& fields) {
  layers::Conv2d conv;
  fields.Require("channels");
  fields.Integer("channels", conv.channels, 1, kMaxWidth);
  fields.Integer("kernel", conv.kernel, 1, kMaxWindow);
  fields.Integer("stride", conv.stride, 1, kMaxWindow);
  fields.Integer("padding", conv.padding, 0, kMaxWindow);
  fields.Integer("dilation", conv.dilation, 1, kMaxWindow);
  fields.Integer("groups", conv.groups, 1, kMaxWidth);
  fields.Bool("bias", conv.bias);
  return conv;
}

layers::Kind ReadLinear(FieldReader& fields) {
  layers::Linear linear;
  fields.Require("features");
  fields.Integer("features", linear.features, 1, kMaxFeatures);
  fields.Bool("bias", linear.bias);
  return linear;
}

layers::Kind ReadBatchNorm(FieldReader& fields) {
  layers::BatchNorm norm;
  NumberOver(fields, "eps", norm.eps, 0, 1);
  Number(fields, "momentum", norm.momentum, 0, 1);
  return norm;
}

layers::Kind ReadLayerNorm(FieldReader& fields) {
  layers::LayerNorm norm;
  NumberOver(fields, "eps", norm.eps, 0, 1);
  return norm;
}

layers::Kind ReadGelu(FieldReader& fields) {
  layers::Gelu gelu;
  fields.Bool("tanh", gelu.tanh);
  return gelu;
}

template <typename Pool>
Pool ReadPool(FieldReader& fields) {
  Pool pool;
  fields.Integer("kernel", pool.kernel, 1, kMaxWindow);
  fields.Integer("stride", pool.stride, 0, kMaxWindow);
  fields.Integer("padding", pool.padding, 0, kMaxWindow / 2);
  return pool;
}

layers::Kind ReadMaxPool(FieldReader& fields) {
  auto pool = ReadPool<layers::MaxPool>(fields);
  fields.Bool("ceil_mode", pool.ceil_mode);
  return pool;
}

layers::Kind ReadAvgPool(FieldReader& fields) {
  auto pool = ReadPool<layers::AvgPool>(fields);
  fields.Bool("count_padding", pool.count_padding);
  return pool;
}

layers::Kind ReadLrn(FieldReader& fields) {
  layers::Lrn lrn;
  fields.Integer("size", lrn.size, 1, kMaxWindow);
  Number(fields, "alpha", lrn.alpha, 0, kMaxLrn);
  Number(fields, "beta", lrn.beta, 0, kMaxLrn);
  Number(fields, "k", lrn.k, 0, kMaxLrn);
  return lrn;
}

layers::Kind ReadDropout(FieldReader& fields) {
  layers::Dropout dropout;
  Number(fields, "rate", dropout.rate, 0, 1);
  if (dropout.rate == 1) fields.Violate("rate", "is 1; expected a number under 1");
  return dropout;
}

layers::Kind ReadEmbedding(FieldReader& fields) {
  layers::Embedding embedding;
  fields.Require("width");
  fields.Integer("width", embedding.width, 1, kMaxWidth);
  return embedding;
}

layers::Kind ReadAttention(FieldReader& fields) {
  layers::Attention attention;
  fields.Integer("heads", attention.heads, 1, kMaxWindow);
  return attention;
}

struct KindReader {
  std::string name;
  layers::Kind (*read)(FieldReader&);  // null: without options
  layers::Plain plain = layers::Plain::kRelu;
};

const std::vector<KindReader>& KindReaders() {
  static const auto* readers = [] {
    auto* all = new std::vector<KindReader>{{"conv2d", ReadConv2d},
                                            {"linear", ReadLinear},
                                            {"batch_norm", ReadBatchNorm},
                                            {"layer_norm", ReadLayerNorm},
                                            {"gelu", ReadGelu},
                                            {"max_pool", ReadMaxPool},
                                            {"avg_pool", ReadAvgPool},
                                            {"lrn", ReadLrn},
                                            {"dropout", ReadDropout},
                                            {"embedding", ReadEmbedding},
                                            {"attention", ReadAttention}};
    for (const layers::Plain plain : layers::PlainKinds()) {
      all->push_back({std::string(layers::KindName(plain)), nullptr, plain});
    }
    return all;
  }();
  return *readers;
}

layers::Kind ReadKind(FieldReader& layer, const std::string& path,
                      std::vector<FieldViolation>& wrong) {
  std::vector<std::string> names;
  const KindReader* found = nullptr;
  int count = 0;
  for (const KindReader& reader : KindReaders()) {
    names.push_back(reader.name);
    if (!layer.Has(reader.name)) continue;
    found = &reader;
    ++count;
  }
  if (count != 1) {
    wrong.push_back({path, absl::StrCat("holds ", count == 0 ? "none" : "more than one", " of ",
                                        absl::StrJoin(names, ", "), "; expected one")});
    return std::monostate();
  }
  FieldReader fields = layer.Object(found->name);
  return found->read == nullptr ? layers::Kind(found->plain) : found->read(fields);
}

}  // namespace

int64_t ReadLayers(FieldReader& model, layers::Stack& stack) {
  std::vector<FieldViolation>& violations = model.violations();
  const size_t known = violations.size();
  model.Integers("input", stack.input, 1, kMaxTokens);
  model.Integer("vocabulary", stack.vocabulary, 0, kMaxFeatures);
  std::vector<FieldReader> readers = model.Objects("stack");
  if (readers.empty() || readers.size() > kMaxLayers) {
    model.Violate("stack",
                  absl::StrCat("has ", readers.size(), " layers; expected 1 to ", kMaxLayers));
    return 0;
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    layers::Layer& layer = stack.layers.emplace_back();
    readers[i].String("name", layer.name);
    readers[i].Strings("from", layer.from);
    layer.kind = ReadKind(readers[i], absl::StrCat(model.PathOf("stack"), "[", i, "]"), violations);
  }
  // What is wrong by itself need not be told again as what does not fit.
  if (violations.size() > known) return 0;
  return layers::PlanStack(stack, model.path(), violations).classes;
}

}  // namespace trainyard::run_dir
