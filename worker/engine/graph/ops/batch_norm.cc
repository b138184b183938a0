// batch_norm (Ioffe & Szegedy 2015, algorithm 1), over rows, H and W of each channel:
//   (x [C, H, W], weight, bias, running_mean, running_var [C]) -> y, mean [C], variance [C]
//   mean and variance (biased) are those of the batch. Without batch_statistics they are read in
//   place of the running ones: in an evaluation these, and to compute y again those of the batch.
//   gradient  (dy, x, weight, mean, variance) -> dx, dweight, dbias
//   Fused with relu, the gradient reads the bias and computes the rectifier's sign again from x:
//   that is less traffic than reading y, and frees y earlier.
//   Fused with the sum of a residual connection and its relu, it reads the residual and writes, as
//   output 3, one bit an element that tells where y is positive. The gradient reads these bits, and
//   its output 3 is dy where they are set: the gradient of the residual.
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/norm_gradient.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

std::vector<Node::Overwrite> NormOverwrites(const Node& node) {
  std::vector<Node::Overwrite> possible = {{0, 0}};
  if (node.norm().residual > 0) {
    possible.push_back({0, node.norm().residual});
  }
  return possible;
}

std::vector<Node::Overwrite> NormGradientOverwrites(const Node& node) {
  const NormAttributes& norm = node.norm();
  std::vector<Node::Overwrite> possible;
  if (norm.mask > 0) {
    possible.push_back({3, 0});
    if (norm.second_gradient > 0) {
      possible.push_back({3, norm.second_gradient});
    }
  } else {
    possible.push_back({0, 0});
  }
  possible.push_back({0, 1});
  if (norm.addend > 0) {
    possible.push_back({0, norm.addend});
  }
  return possible;
}

}  // namespace

const OpDefinition kBatchNormDefinition = {.flops = FlopsPerElement<8>,
                                           .gradient = EmitNormGradient<OpKind::kBatchNormGradient>,
                                           .overwrites = NormOverwrites};
const OpDefinition kBatchNormGradientDefinition = {.flops = FlopsPerElement<11>,
                                                   .overwrites = NormGradientOverwrites};

ValueId GraphBuilder::BatchNorm(absl::string_view name, ValueId x, double eps, double momentum) {
  if (!CheckNewLayer(name) || !CheckInput(name, x, 3)) {
    return kNoValue;
  }
  if (!(eps > 0) || !(momentum >= 0 && momentum <= 1)) {
    return Fail(name, absl::StrCat("batch_norm with eps ", eps, " and momentum ", momentum,
                                   "; expected eps above 0 and momentum in [0, 1]"));
  }
  const Shape channels = {shape(x)[0]};
  Node node{OpKind::kBatchNorm,
            std::string(name),
            {x, AddParameter(name, "weight", channels), AddParameter(name, "bias", channels),
             AddBuffer(name, "running_mean", channels), AddBuffer(name, "running_var", channels)},
            {},
            NormAttributes{eps, momentum, true}};
  const ValueId y = AddNode(node, shape(x));
  for (const char* statistic : {".mean", ".variance"}) {
    const ValueId id =
        graph_.Add({absl::StrCat(name, statistic), Role::kActivation, channels, false, kNoValue});
    graph_.nodes.back().outputs.push_back(id);
  }
  return y;
}

}  // namespace trainyard::engine
