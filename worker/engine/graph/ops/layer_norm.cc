// layer_norm (Ba et al. 2016, section 3), over the features of each vector:
//   (x [C] or [T, C], weight, bias [C]) -> y, mean [] or [T], inverse [] or [T]
//   inverse: 1 / sqrt(variance + eps), of the biased variance
//   gradient  (dy, x, weight, mean, inverse) -> dx, dweight, dbias
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/norm_gradient.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {

const OpDefinition kLayerNormDefinition = {
    .flops = FlopsPerElement<8>, .gradient = EmitNormGradient<OpKind::kLayerNormGradient>};
const OpDefinition kLayerNormGradientDefinition = {.flops = FlopsPerElement<14>,
                                                   .overwrites = OverFirstInput};

ValueId GraphBuilder::LayerNorm(absl::string_view name, ValueId x, double eps) {
  if (!CheckNewLayer(name) || !CheckFeatures(name, x)) {
    return kNoValue;
  }
  if (!(eps > 0)) {
    return Fail(name, absl::StrCat("layer_norm with eps ", eps, "; expected above 0"));
  }
  const Shape features = {shape(x).back()};
  const Shape vectors(shape(x).begin(), shape(x).end() - 1);
  Node node{OpKind::kLayerNorm,
            std::string(name),
            {x, AddParameter(name, "weight", features), AddParameter(name, "bias", features)},
            {},
            layers::LayerNorm{eps}};
  const ValueId y = AddNode(node, shape(x));
  if (y == kNoValue) {
    return kNoValue;
  }
  for (const char* statistic : {".mean", ".inverse"}) {
    const ValueId id =
        graph_.Add({absl::StrCat(name, statistic), Role::kActivation, vectors, true, kNoValue});
    graph_.nodes.back().outputs.push_back(id);
  }
  return y;
}

}  // namespace trainyard::engine
