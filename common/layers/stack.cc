// Names the kinds of layers, as specs and parameters spell them.
#include "common/layers/stack.h"

#include <type_traits>

namespace trainyard::layers {
namespace {

struct Name {
  absl::string_view operator()(std::monostate) const { return ""; }
  template <class Layer>
  absl::string_view operator()(const Layer&) const {
    return Layer::kName;
  }
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

bool HasWeights(const Kind& kind) {
  const auto has_weights = []<class Layer>(const Layer& layer) {
    if constexpr (std::is_same_v<Layer, std::monostate>) {
      return false;
    } else if constexpr (std::is_same_v<Layer, Plain>) {
      return layer == Plain::kPositionEmbedding;
    } else {
      return Layer::kHasWeights;
    }
  };
  return std::visit(has_weights, kind);
}

}  // namespace trainyard::layers
