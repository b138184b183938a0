// Writes the networks that specs choose by name as stacks of layers. Each network stands here once.
// The server finds out from the stack what fits, and the engine builds its graph from it. Layers
// have the names of their modules in PyTorch, and mean the same.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layers/stack.h"

namespace trainyard::networks {

// Each StackOf returns INVALID_ARGUMENT if there is no such network. It does not check whether the
// samples fit.

// linear-relu for each hidden width, then a linear classifier: fc1, fc2, ... fcN. The input is
// flattened.
struct MlpSpec {
  std::vector<int64_t> input;  // of one sample, for example {1, 28, 28}
  std::vector<int64_t> hidden = {};
  int64_t classes = 10;
};
absl::StatusOr<layers::Stack> StackOf(const MlpSpec& spec);

// conv1 3x3 (padding 1) - relu - max_pool 2x2 - conv2 3x3 (padding 1) - relu - max_pool 2x2 - fc.
// With batch_norm, bn1 and bn2 stand between convolution and relu (and the convolutions have no
// bias).
struct ConvnetSpec {
  std::vector<int64_t> input;                // {channels, height, width}
  std::vector<int64_t> channels = {32, 64};  // of conv1 and conv2
  int64_t classes = 10;
  bool batch_norm = false;
};
absl::StatusOr<layers::Stack> StackOf(const ConvnetSpec& spec);

// The layers with which a network for images begins.
enum class Stem {
  kImagenet,  // 7x7 convolution, stride 2, then max_pool 3x3, stride 2
  kCifar,     // 3x3 convolution
};

// Residual networks (He et al. 2015, "Deep residual learning for image recognition"), with the
// names of torchvision. Depths 18 and 34 have basic blocks, 50 and 101 bottlenecks (stride in the
// 3x3, "v1.5"), of 64 to 512 channels in four stages. Depths 20, 32, 44, 56 and 110 are the paper's
// for CIFAR: three stages of 16, 32 and 64 channels, with the CIFAR stem; a shortcut that changes
// its shape is a convolution.
struct ResnetSpec {
  std::vector<int64_t> input;  // {channels, height, width}
  int64_t depth = 18;
  Stem stem = Stem::kImagenet;
  int64_t classes = 1000;
  // The last batch norm of every block starts at 0, so that blocks start as identities (Goyal et
  // al. 2017, section 5.1). The stack is the same; only the engine reads this.
  bool zero_init_residual = false;
};
absl::StatusOr<layers::Stack> StackOf(const ResnetSpec& spec);

// WRN-depth-width (Zagoruyko & Komodakis 2016, "Wide residual networks"), pre-activation, without
// dropout: three stages of (depth - 4) / 6 blocks with 16, 32, 64 times `width` channels. Names:
// conv1, block1.layer.0.{bn1,conv1,bn2,conv2,convShortcut}, ..., bn1, fc.
struct WideResnetSpec {
  std::vector<int64_t> input;  // {channels, height, width}
  int64_t depth = 28;          // 6 n + 4
  int64_t width = 10;
  int64_t classes = 10;
};
absl::StatusOr<layers::Stack> StackOf(const WideResnetSpec& spec);

// Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", with the
// names of torchvision. Images of 224 x 224 leave 6 x 6 for the classifier;
// for other sizes its first layer has what they leave.
struct AlexnetSpec {
  std::vector<int64_t> input;  // {channels, height, width}
  int64_t classes = 1000;
  double dropout = 0.5;  // rate, before the first two layers of the classifier
};
absl::StatusOr<layers::Stack> StackOf(const AlexnetSpec& spec);

// Simonyan & Zisserman 2015, "Very deep convolutional networks", with the names of
// torchvision.
struct VggSpec {
  std::vector<int64_t> input;  // {channels, height, width}
  int64_t depth = 16;          // 11, 13, 16 or 19
  bool batch_norm = false;     // after each convolution
  int64_t classes = 1000;
  double dropout = 0.5;  // rate, after the first two layers of the classifier
};
absl::StatusOr<layers::Stack> StackOf(const VggSpec& spec);

// Szegedy et al. 2015, "Going deeper with convolutions", with batch norm and without the auxiliary
// classifiers. Stem kImagenet: names of torchvision. Stem kCifar: the form that
// is customary there, with the names of its usual PyTorch code (pre_layers.0, a3.b1.0, ...,
// linear).
struct GooglenetSpec {
  std::vector<int64_t> input;  // {channels, height, width}
  Stem stem = Stem::kImagenet;
  int64_t classes = 1000;
  double dropout = 0.2;  // rate, before the classifier
};
absl::StatusOr<layers::Stack> StackOf(const GooglenetSpec& spec);

// GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners"), with the
// names and layouts of transformers' GPT2LMHeadModel: transformer.wte, transformer.wpe,
// transformer.h.<n>.{ln_1,attn.c_attn,attn.c_proj,ln_2,mlp.c_fc,mlp.c_proj}, transformer.ln_f; the
// head is wte.
struct Gpt2Spec {
  int64_t layers = 12;
  int64_t heads = 12;  // a divisor of width
  int64_t width = 768;
  int64_t context = 1024;
  int64_t vocabulary = 50257;
  double dropout = 0.1;  // rate, after the embeddings and at the end of each half block
};
absl::StatusOr<layers::Stack> StackOf(const Gpt2Spec& spec);

// A network by name, or one that is spelled out layer by layer.
using Network = std::variant<layers::Stack, MlpSpec, ConvnetSpec, ResnetSpec, WideResnetSpec,
                             AlexnetSpec, VggSpec, GooglenetSpec, Gpt2Spec>;
absl::StatusOr<layers::Stack> StackOf(const Network& network);

}  // namespace trainyard::networks
