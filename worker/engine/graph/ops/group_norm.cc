// group_norm (Wu & He 2018, section 3), over H, W and the channels of each group of a row:
//   (x [C, H, W], weight, bias [C]) -> y, mean [groups], inverse [groups]
//   inverse: 1 / sqrt(variance + eps), with the biased variance
//   gradient  (dy, x, weight, mean, inverse) -> dx, dweight, dbias
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/norm_gradient.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {

const OpDefinition kGroupNormDefinition = {
    .flops = FlopsPerElement<8>, .gradient = EmitNormGradient<OpKind::kGroupNormGradient>};
const OpDefinition kGroupNormGradientDefinition = {.flops = FlopsPerElement<14>,
                                                   .overwrites = OverFirstInput};

ValueId GraphBuilder::Layer(absl::string_view name, ValueId x, const layers::GroupNorm& options) {
  if (!CheckNewLayer(name) || !CheckInput(name, x, 3)) {
    return kNoValue;
  }
  if (options.groups < 1 || shape(x)[0] % options.groups != 0 || !(options.eps > 0)) {
    return Fail(name, absl::StrCat("group_norm of input ", ShapeString(shape(x)), " with ",
                                   options.groups, " groups and eps ", options.eps,
                                   "; expected groups that divide the channels, and eps above 0"));
  }
  const Shape channels = {shape(x)[0]};
  Node node{OpKind::kGroupNorm,
            std::string(name),
            {x, AddParameter(name, "weight", channels), AddParameter(name, "bias", channels)},
            {},
            options};
  const ValueId y = AddNode(node, shape(x));
  if (y == kNoValue) {
    return kNoValue;
  }
  for (const char* statistic : {".mean", ".inverse"}) {
    const ValueId id = graph_.Add(
        {absl::StrCat(name, statistic), Role::kActivation, {options.groups}, true, kNoValue});
    graph_.nodes.back().outputs.push_back(id);
  }
  return y;
}

}  // namespace trainyard::engine
