// dropout (Srivastava et al. 2014, section 4, with the scale in training):
//   (x) -> y = x / (1 - rate) where kept, else 0; not there in an evaluation
//   gradient  (dy) -> dx, the same op on dy
//   Element i of a row, counted in NCHW order, is kept where word i % 4 of the Philox block of
//   dropout.h is at least rate * 2^32. The block is keyed by seed, step, layer and the row's place
//   in the global batch: so the elements do not depend on how the rows are spread over ranks, and
//   the gradient draws them again instead of keeping them.
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void Gradient(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kDropout);
}

}  // namespace

// A block of 4 words takes 10 rounds of about 8 operations.
const OpDefinition kDropoutDefinition = {
    .flops = FlopsPerElement<20>, .gradient = Gradient, .overwrites = OverFirstInput};

ValueId GraphBuilder::Dropout(ValueId x, double rate) {
  const std::string name = AutoName("dropout");
  if (!CheckInput(name, x, 0)) {
    return kNoValue;
  }
  if (!(rate >= 0 && rate < 1)) {
    return Fail(name, absl::StrCat("rate ", rate, "; expected [0, 1)"));
  }
  if (rate == 0) {
    return x;
  }
  uint32_t layer = 0;
  for (const Node& node : graph_.nodes) {
    layer += node.op == OpKind::kDropout ? 1 : 0;
  }
  return AddNode({OpKind::kDropout, name, {x}, {}, DropoutAttributes{rate, layer}}, shape(x));
}

}  // namespace trainyard::engine
