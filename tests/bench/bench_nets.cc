// Builds the networks that the benchmarks measure.
#include "tests/bench/bench_nets.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/strings.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using Builder = std::function<absl::StatusOr<Graph>()>;

std::map<std::string, Builder, std::less<>> Builders() {
  const Shape digit = {1, 28, 28}, thumbnail = {3, 32, 32}, image = {3, 224, 224};
  const auto cifar_resnet = [=](int64_t depth) {
    return [=] {
      return BuildResnet({.input = thumbnail, .depth = depth, .stem = Stem::kCifar, .classes = 10});
    };
  };
  return {
      // These networks are as small as possible, for trying out a benchmark.
      {"smoke",
       [] {
         return BuildConvnet({.input = {3, 8, 8}, .channels = {8, 8}, .batch_norm = true});
       }},
      {"gpt2-smoke",
       [] {
         return BuildGpt2(
             {.layers = 1, .heads = 2, .width = 16, .context = 8, .vocabulary = 11, .dropout = 0});
       }},
      {"mlp",
       [=] {
         return BuildMlp({.input = digit, .hidden = {128, 64}});
       }},
      {"convnet", [=] { return BuildConvnet({.input = digit}); }},
      {"convnet_bn", [=] { return BuildConvnet({.input = digit, .batch_norm = true}); }},
      {"resnet20", cifar_resnet(20)},
      {"resnet18", cifar_resnet(18)},
      {"resnet50", [=] { return BuildResnet({.input = image, .depth = 50}); }},
      {"wrn-16-4", [=] { return BuildWideResnet({.input = thumbnail, .depth = 16, .width = 4}); }},
      {"wrn-28-10", [=] { return BuildWideResnet({.input = thumbnail}); }},
      {"googlenet",
       [=] {
         return BuildGooglenet(
             {.input = thumbnail, .stem = Stem::kCifar, .classes = 10, .dropout = 0});
       }},
      {"vgg11-32",
       [=] { return BuildVgg({.input = thumbnail, .depth = 11, .classes = 10, .dropout = 0}); }},
      {"alexnet", [=] { return BuildAlexnet({.input = image}); }},
      {"gpt2", [] { return BuildGpt2({.dropout = 0}); }},
      // The network of jobs/gpt2-tinyshakespeare.yaml.
      {"gpt2-small",
       [] {
         return BuildGpt2({.layers = 4,
                           .heads = 4,
                           .width = 128,
                           .context = 64,
                           .vocabulary = 65,
                           .dropout = 0});
       }},
  };
}

}  // namespace

absl::StatusOr<Graph> BuildBenchNet(absl::string_view net) {
  const auto builders = Builders();
  const auto found = builders.find(net);
  if (found != builders.end()) return found->second();
  std::string names;
  for (const auto& [name, build] : builders)
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  return absl::InvalidArgumentError(absl::StrCat("--net ", net, "; expected one of ", names));
}

OptimizerSpec BenchOptimizer(const Graph& model) {
  if (model.vocabulary > 0) return {.rule = OptimizerSpec::Rule::kAdamW, .weight_decay = 0.1};
  return {.momentum = 0.9, .weight_decay = 5e-4};
}

MadeUpBatch MakeUpBatch(const Graph& model, int64_t rows) {
  MadeUpBatch batch;
  batch.inputs.resize(static_cast<size_t>(rows * ElementCount(model.input_shape())));
  batch.labels.resize(static_cast<size_t>(rows * model.labels_per_row()));
  uint32_t state = 1;
  const auto next = [&state] { return state = state * 1664525 + 1013904223; };
  for (float& input : batch.inputs) {
    input = model.vocabulary > 0
                ? static_cast<float>((next() >> 8) % static_cast<uint32_t>(model.vocabulary))
                : static_cast<float>(next() >> 8) / (1 << 23) - 1;
  }
  for (int32_t& label : batch.labels) {
    label = static_cast<int32_t>((next() >> 8) % static_cast<uint32_t>(model.classes()));
  }
  return batch;
}

std::string RenderMemoryPlan(const MemoryPlan& plan) {
  std::string text;
  auto categories = plan.categories();
  categories.emplace_back("total", plan.total());
  for (const auto& [name, bytes] : categories) {
    absl::StrAppend(&text, absl::StrFormat("%-12s %s\n", name, FormatBytes(bytes)));
  }
  absl::StrAppend(&text, "activations would take ", FormatBytes(plan.activations_unshared),
                  " without sharing\n");
  return text;
}

}  // namespace trainyard::engine
