// The names of the kinds, as specs and parameters spell them.
#include "common/layers/stack.h"

namespace trainyard::layers {
namespace {

struct Name {
  absl::string_view operator()(std::monostate) const { return ""; }
  absl::string_view operator()(const Conv2d&) const { return "conv2d"; }
  absl::string_view operator()(const Linear&) const { return "linear"; }
  absl::string_view operator()(const BatchNorm&) const { return "batch_norm"; }
  absl::string_view operator()(const LayerNorm&) const { return "layer_norm"; }
  absl::string_view operator()(const Gelu&) const { return "gelu"; }
  absl::string_view operator()(const MaxPool&) const { return "max_pool"; }
  absl::string_view operator()(const AvgPool&) const { return "avg_pool"; }
  absl::string_view operator()(const Lrn&) const { return "lrn"; }
  absl::string_view operator()(const Dropout&) const { return "dropout"; }
  absl::string_view operator()(const Embedding&) const { return "embedding"; }
  absl::string_view operator()(const Attention&) const { return "attention"; }
  absl::string_view operator()(Plain plain) const {
    switch (plain) {
      case Plain::kRelu:
        return "relu";
      case Plain::kTanh:
        return "tanh";
      case Plain::kSigmoid:
        return "sigmoid";
      case Plain::kAdd:
        return "add";
      case Plain::kConcat:
        return "concat";
      case Plain::kGlobalAvgPool:
        return "global_avg_pool";
      case Plain::kFlatten:
        return "flatten";
      case Plain::kPositionEmbedding:
        return "position_embedding";
    }
    return "";
  }
};

}  // namespace

absl::string_view KindName(const Kind& kind) {
  return std::visit(Name(), kind);
}

std::vector<Plain> PlainKinds() {
  return {Plain::kRelu,   Plain::kTanh,          Plain::kSigmoid, Plain::kAdd,
          Plain::kConcat, Plain::kGlobalAvgPool, Plain::kFlatten, Plain::kPositionEmbedding};
}

}  // namespace trainyard::layers
