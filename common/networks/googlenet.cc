// Writes GoogLeNet, module by module.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {
namespace {

// The channels of a module, as in table 1 of the paper.
struct Inception {
  const char* suffix;
  int64_t ones;            // 1x1
  int64_t reduce3, three;  // 1x1, then 3x3
  int64_t reduce5, five;   // 1x1, then 5x5
  int64_t pool;            // max_pool 3x3, then 1x1
};

// The modules of the stages 3, 4 and 5; max_pool stands between the stages.
const std::vector<Inception>& Stage(int stage) {
  static const auto& stages = *new std::vector<std::vector<Inception>>{
      {{"a", 64, 96, 128, 16, 32, 32}, {"b", 128, 128, 192, 32, 96, 64}},
      {{"a", 192, 96, 208, 16, 48, 64},
       {"b", 160, 112, 224, 24, 64, 64},
       {"c", 128, 128, 256, 24, 64, 64},
       {"d", 112, 144, 288, 32, 64, 64},
       {"e", 256, 160, 320, 32, 128, 128}},
      {{"a", 256, 160, 320, 32, 128, 128}, {"b", 384, 192, 384, 48, 128, 128}}};
  return stages[static_cast<size_t>(stage - 3)];
}

LayerId Concat(StackWriter& writer, const std::vector<LayerId>& branches) {
  return writer.Add(layers::Plain::kConcat, branches);
}

// This form is torchvision's: a convolution has no bias, batch norm has an eps of 0.001, and the
// third branch has 3x3 where the paper has 5x5.
layers::Stack WriteForImagenet(const GooglenetSpec& spec) {
  StackWriter writer(spec.input);
  const auto conv = [&writer](const std::string& name, LayerId x, int64_t channels, int64_t kernel,
                              int64_t stride = 1) {
    x = writer.Conv2d(name + ".conv", x,
                      {.channels = channels,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = kernel / 2,
                       .bias = false});
    return writer.Relu(writer.BatchNorm(name + ".bn", x, {.eps = 1e-3}));
  };
  const auto shrink = [&writer](LayerId x, int64_t kernel) {
    return writer.MaxPool(x, {.kernel = kernel, .stride = 2, .ceil_mode = true});
  };
  LayerId x = shrink(conv("conv1", writer.sample(), 64, 7, 2), 3);
  x = shrink(conv("conv3", conv("conv2", x, 64, 1), 192, 3), 3);
  for (int stage = 3; stage <= 5; ++stage) {
    for (const Inception& it : Stage(stage)) {
      const std::string name = absl::StrCat("inception", stage, it.suffix, ".branch");
      const LayerId pooled = writer.MaxPool(x, {.kernel = 3, .stride = 1, .padding = 1});
      x = Concat(writer, {conv(name + "1", x, it.ones, 1),
                          conv(name + "2.1", conv(name + "2.0", x, it.reduce3, 1), it.three, 3),
                          conv(name + "3.1", conv(name + "3.0", x, it.reduce5, 1), it.five, 3),
                          conv(name + "4.1", pooled, it.pool, 1)});
    }
    if (stage < 5) x = shrink(x, stage == 3 ? 3 : 2);
  }
  x = writer.Dropout(writer.Flatten(writer.GlobalAvgPool(x)), spec.dropout);
  writer.Linear("fc", x, spec.classes);
  return std::move(writer).Finish();
}

// This form is customary for CIFAR: a 3x3 stem, two 3x3 in place of 5x5, and biases before batch
// norms.
layers::Stack WriteForCifar(const GooglenetSpec& spec) {
  StackWriter writer(spec.input);
  // Adds module `number` and the next one of a sequence.
  const auto conv = [&writer](const std::string& sequence, int number, LayerId x, int64_t channels,
                              int64_t kernel) {
    x = writer.Conv2d(absl::StrCat(sequence, ".", number), x,
                      {.channels = channels, .kernel = kernel, .padding = kernel / 2});
    return writer.Relu(writer.BatchNorm(absl::StrCat(sequence, ".", number + 1), x));
  };
  LayerId x = conv("pre_layers", 0, writer.sample(), 192, 3);
  for (int stage = 3; stage <= 5; ++stage) {
    for (const Inception& it : Stage(stage)) {
      const std::string name = absl::StrCat(it.suffix, stage, ".b");
      LayerId five = conv(name + "3", 0, x, it.reduce5, 1);
      five = conv(name + "3", 3, five, it.five, 3);
      const LayerId pooled = writer.MaxPool(x, {.kernel = 3, .stride = 1, .padding = 1});
      x = Concat(writer,
                 {conv(name + "1", 0, x, it.ones, 1),
                  conv(name + "2", 3, conv(name + "2", 0, x, it.reduce3, 1), it.three, 3),
                  conv(name + "3", 6, five, it.five, 3), conv(name + "4", 1, pooled, it.pool, 1)});
    }
    if (stage < 5) x = writer.MaxPool(x, {.kernel = 3, .stride = 2, .padding = 1});
  }
  x = writer.Dropout(writer.Flatten(writer.GlobalAvgPool(x)), spec.dropout);
  writer.Linear("linear", x, spec.classes);
  return std::move(writer).Finish();
}

}  // namespace

absl::StatusOr<layers::Stack> StackOf(const GooglenetSpec& spec) {
  return spec.stem == Stem::kCifar ? WriteForCifar(spec) : WriteForImagenet(spec);
}

}  // namespace trainyard::networks
