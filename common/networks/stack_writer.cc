// Adds layers to a stack. A layer says what it reads only where that is not the layer before, so
// most layers without weights need no name.
#include "common/networks/stack_writer.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/layers/plan.h"

namespace trainyard::networks {

StackWriter::StackWriter(std::vector<int64_t> input, int64_t vocabulary)
    : stack_{.input = std::move(input), .vocabulary = vocabulary} {}

LayerId StackWriter::sample() const {
  return layers::kSample;
}

LayerId StackWriter::Add(layers::Kind kind, const std::vector<LayerId>& from, std::string name) {
  const LayerId id = static_cast<LayerId>(stack_.layers.size());
  layers::Layer layer = {std::move(name), {}, std::move(kind)};
  if (from.size() > 1 || from[0] != id - 1) {
    for (const LayerId source : from) {
      if (source == layers::kSample) {
        layer.from.emplace_back(layers::kSampleName);
        continue;
      }
      std::string& named = stack_.layers[static_cast<size_t>(source)].name;
      if (named.empty()) named = absl::StrCat("l", source);
      layer.from.push_back(named);
    }
  }
  stack_.layers.push_back(std::move(layer));
  return id;
}

LayerId StackWriter::Conv2d(std::string name, LayerId x, const layers::Conv2d& conv) {
  return Add(conv, {x}, std::move(name));
}

LayerId StackWriter::Linear(std::string name, LayerId x, int64_t features) {
  return Add(layers::Linear{.features = features}, {x}, std::move(name));
}

LayerId StackWriter::BatchNorm(std::string name, LayerId x, const layers::BatchNorm& norm) {
  return Add(norm, {x}, std::move(name));
}

LayerId StackWriter::Relu(LayerId x) {
  return Add(layers::Plain::kRelu, {x});
}

LayerId StackWriter::Sum(LayerId a, LayerId b) {
  return Add(layers::Plain::kAdd, {a, b});
}

LayerId StackWriter::MaxPool(LayerId x, const layers::MaxPool& pool) {
  return Add(pool, {x});
}

LayerId StackWriter::GlobalAvgPool(LayerId x) {
  return Add(layers::Plain::kGlobalAvgPool, {x});
}

LayerId StackWriter::Flatten(LayerId x) {
  return Add(layers::Plain::kFlatten, {x});
}

LayerId StackWriter::Dropout(LayerId x, double rate) {
  return Add(layers::Dropout{.rate = rate}, {x});
}

layers::Stack StackWriter::Finish() && {
  return std::move(stack_);
}

}  // namespace trainyard::networks
