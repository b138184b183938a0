// stage_output: the end of a stage of a pipeline that is not the last, in the place of a loss.
//   (x) -> y, x itself; who runs the stage takes it from there and gives it to the next stage
//   gradient  () -> dx, which the next stage has computed
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void Gradient(Autodiff& autodiff, const Node& node) {
  const ValueId x = node.inputs[0];
  const ValueId dx = autodiff.NewGradient(x);
  autodiff.Emit({OpKind::kStageOutputGradient, node.name, {}, {dx}, {}});
  autodiff.Contribute(x, dx);
}

}  // namespace

const OpDefinition kStageOutputDefinition = {
    .flops = Nothing, .gradient = Gradient, .bytes = Nothing, .is_alias = true};
const OpDefinition kStageOutputGradientDefinition = {.flops = Nothing};

}  // namespace trainyard::engine
