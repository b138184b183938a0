// Lowers the nodes of a step graph in their order, each by the function of its op.
#include "worker/engine/backend/cpu/compiler.h"

#include "worker/engine/backend/cpu/lower_ops.h"

namespace trainyard::engine::cpu {
namespace {

constexpr void (*kLowerings[])(Lowering&, const Node&) = {
#define TY_OP(kind, name) Lower##kind,
#include "worker/engine/graph/ops.def"
#undef TY_OP
};

}  // namespace

void Compile(const StepGraph& step, const ReductionLayout& reduction, const StateMemory& state,
             const LoweringOptions& options, dnnl::engine& engine, dnnl::stream& stream,
             PackedWeights& weights, const Program* larger, Program& program) {
  Lowering lowering(step, reduction, state, options, engine, stream, weights, program);
  lowering.Begin();
  const std::vector<int64_t> ready = ReadyAfterNodes(step, reduction);
  const size_t forward_nodes = ForwardNodes(step);
  for (size_t i = 0; i < ready.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    kLowerings[static_cast<size_t>(node.op)](lowering, node);
    program.SetReady(ready[i]);
    if (i + 1 == forward_nodes) program.forward_calls = program.calls().size();
  }
  lowering.Finish();
  program.Plan(options.is_guarded, larger);
}

}  // namespace trainyard::engine::cpu
