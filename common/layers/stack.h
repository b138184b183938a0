// Describes a network layer by layer as plain structs. Specs hold it as LayersModel, and the engine
// builds a graph from it. Fields and defaults are those of proto/trainyard/v1/training.proto,
// except for two of Linear. Each kind states its name in specs, and whether it has weights.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::layers {

struct Conv2d {
  static constexpr char kName[] = "conv2d";
  static constexpr bool kHasWeights = true;
  int64_t channels = 0;  // of the output; 0 means not given, which is reported elsewhere
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  friend bool operator==(const Conv2d&, const Conv2d&) = default;
};

struct Linear {
  static constexpr char kName[] = "linear";
  static constexpr bool kHasWeights = true;
  int64_t features = 0;  // of the output; 0 means not given
  bool bias = true;
  // Specs do not have these two; networks that are chosen by name do.
  bool is_transposed = false;  // the weight lies as [in, out], as transformers stores GPT-2's
  std::string tied_to = {};    // the embedding whose weight it uses, or empty for one of its own
  friend bool operator==(const Linear&, const Linear&) = default;
};

struct BatchNorm {
  static constexpr char kName[] = "batch_norm";
  static constexpr bool kHasWeights = true;
  double eps = 1e-5;
  double momentum = 0.1;
  friend bool operator==(const BatchNorm&, const BatchNorm&) = default;
};

struct LayerNorm {
  static constexpr char kName[] = "layer_norm";
  static constexpr bool kHasWeights = true;
  double eps = 1e-5;
  friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
};

struct GroupNorm {
  static constexpr char kName[] = "group_norm";
  static constexpr bool kHasWeights = true;
  int64_t groups = 0;  // 0 means not given
  double eps = 1e-5;
  friend bool operator==(const GroupNorm&, const GroupNorm&) = default;
};

struct Gelu {
  static constexpr char kName[] = "gelu";
  static constexpr bool kHasWeights = false;
  bool tanh = false;  // the approximation by tanh
  friend bool operator==(const Gelu&, const Gelu&) = default;
};

struct MaxPool {
  static constexpr char kName[] = "max_pool";
  static constexpr bool kHasWeights = false;
  int64_t kernel = 2;
  int64_t stride = 0;  // 0 means as the kernel
  int64_t padding = 0;
  bool ceil_mode = false;
  friend bool operator==(const MaxPool&, const MaxPool&) = default;
};

struct AvgPool {
  static constexpr char kName[] = "avg_pool";
  static constexpr bool kHasWeights = false;
  int64_t kernel = 2;
  int64_t stride = 0;  // 0 means as the kernel
  int64_t padding = 0;
  bool count_padding = true;
  friend bool operator==(const AvgPool&, const AvgPool&) = default;
};

struct Lrn {
  static constexpr char kName[] = "lrn";
  static constexpr bool kHasWeights = false;
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  friend bool operator==(const Lrn&, const Lrn&) = default;
};

struct Upsample {
  static constexpr char kName[] = "upsample";
  static constexpr bool kHasWeights = false;
  int64_t scale = 2;
  friend bool operator==(const Upsample&, const Upsample&) = default;
};

struct Dropout {
  static constexpr char kName[] = "dropout";
  static constexpr bool kHasWeights = false;
  double rate = 0.5;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

struct Embedding {
  static constexpr char kName[] = "embedding";
  static constexpr bool kHasWeights = true;
  int64_t width = 0;  // 0 means not given
  friend bool operator==(const Embedding&, const Embedding&) = default;
};

struct Attention {
  static constexpr char kName[] = "attention";
  static constexpr bool kHasWeights = false;
  int64_t heads = 1;
  friend bool operator==(const Attention&, const Attention&) = default;
};

// The layers without options.
enum class Plain {
  kRelu,
  kTanh,
  kSigmoid,
  kAdd,
  kConcat,
  kGlobalAvgPool,
  kFlatten,
  kPositionEmbedding
};

// Exactly one kind. The monostate means that none was given, which is reported elsewhere.
using Kind = std::variant<std::monostate, Conv2d, Linear, BatchNorm, LayerNorm, GroupNorm, Gelu,
                          MaxPool, AvgPool, Lrn, Upsample, Dropout, Embedding, Attention, Plain>;

struct Layer {
  std::string name;               // empty means its kind and number, "conv2d1"
  std::vector<std::string> from;  // empty means the layer before
  Kind kind;
  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Stack {
  std::vector<int64_t> input = {1, 28, 28};
  int64_t vocabulary = 0;  // 0 if samples are images
  std::vector<Layer> layers = {};
  friend bool operator==(const Stack&, const Stack&) = default;
};

// The name of the sample in `from`.
inline constexpr absl::string_view kSampleName = "input";

// Returns the name of the kind in specs, such as "conv2d" or "max_pool", or an empty text if none
// was given.
absl::string_view KindName(const Kind& kind);
// Returns true if layers of this kind have weights.
bool HasWeights(const Kind& kind);

}  // namespace trainyard::layers
