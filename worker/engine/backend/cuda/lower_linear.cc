// Lowers linear layers to cuBLASLt. Weights are read in the type of the activations; their
// gradients are f32, in the reduction arena.
#include <algorithm>

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/taken_node.h"

namespace trainyard::engine::cuda {

namespace {

// Returns null if nothing can be run.
absl::StatusOr<const blas::Matmul*> FindProduct(Lowering& lowering,
                                                const blas::MatmulProblem& problem) {
  if (lowering.target().products == nullptr) return nullptr;
  return lowering.target().products->Find(problem, lowering.target().effort);
}

int64_t WorkspaceOf(const blas::Matmul* product) {
  return product == nullptr ? blas::MatmulOptions().workspace_bytes_max
                            : product->workspace_bytes();
}

// Returns what a product launches and moves that does the work of `taken`, too, or of null.
Traffic TrafficOf(const blas::Matmul* product, const Node* taken) {
  Traffic traffic = {.taken = taken};
  if (product == nullptr) return traffic;
  const blas::OwnEpilogue own = product->own_epilogue();
  traffic.kernels += own.kernels;
  traffic.more_bytes = static_cast<double>(own.bytes);
  return traffic;
}

// Returns the place of the output of a node that a product takes over. The product writes while it
// reads `input`, so it must not write over it.
Place MakeTakenOutput(Lowering& lowering, const Node& taken, const Place& input) {
  const int overwritten = taken.OverwrittenBy(0);
  if (overwritten >= 0) {
    const ValueId over = taken.inputs[static_cast<size_t>(overwritten)];
    if (lowering.HasPlace(over) && lowering.PlaceOf(over).buffer == input.buffer) {
      return lowering.MakePlace(taken.outputs[0], lowering.target().type);
    }
  }
  return lowering.MakeOutput(taken);
}

// These are the places that a product reads and writes. The aux and the addend may have no buffer.
struct ProductPlaces {
  Place input = {}, aux = {}, addend = {}, output = {};
};

ProductPlaces MakePlaces(Lowering& lowering, const Node& node, Type type, const TakenNode& taken) {
  ProductPlaces places = {.input = lowering.PlaceOf(node.inputs[0])};
  if (taken.node == nullptr) {
    places.output = type == lowering.target().type ? lowering.MakeOutput(node)
                                                   : lowering.MakePlace(node.outputs[0], type);
    return places;
  }
  if (taken.keeps_input) places.aux = lowering.MakeOutput(node);
  if (taken.activation == blas::Activation::kGeluGradient) {
    places.aux = lowering.PlaceOf(taken.node->inputs[1]);
  }
  if (taken.addend != kNoValue) places.addend = lowering.PlaceOf(taken.addend);
  places.output = MakeTakenOutput(lowering, *taken.node, places.input);
  return places;
}

// Emits the product of the node's first input with its weight, with an output of the type.
absl::Status EmitProduct(Lowering& lowering, const Node& node, bool weight_transposed, Type type,
                         const void* bias) {
  const ValueId output = node.outputs[0];
  const WeightCopy& copy = lowering.weights().copy({node.inputs[1]});
  const TakenNode taken = FindTakenNode(lowering, node);
  const ProductPlaces places = MakePlaces(lowering, node, type, taken);
  TY_ASSIGN_OR_RETURN(
      const blas::Matmul* const product,
      FindProduct(lowering, {.m = lowering.Pixels(output),
                             .n = lowering.Channels(output),
                             .k = lowering.Channels(node.inputs[0]),
                             .b_transposed = weight_transposed,
                             .input = lowering.target().type,
                             .output = type,
                             .a_stride = places.input.stride,
                             .b_stride = copy.stride,
                             .d_stride = places.output.stride,
                             .tf32 = lowering.target().tf32,
                             .addend_stride = places.addend.stride,
                             .bias = bias != nullptr,
                             .activation = node.relu ? blas::Activation::kRelu : taken.activation,
                             .aux_stride = places.aux.stride}));
  const BufferId workspace = lowering.AddScratch(WorkspaceOf(product));
  if (taken.node != nullptr) lowering.taken.insert(taken.node);
  lowering.Emit(
      node,
      [=, weight = copy.data, program = &lowering.program()](const Enqueue& how) {
        return product->Run({.a = program->At(places.input).data,
                             .b = weight,
                             .addend = program->At(places.addend).data,
                             .bias = bias,
                             .aux = program->At(places.aux).data,
                             .d = program->At(places.output).data,
                             .workspace = program->ptr<void>(workspace)},
                            how.stream);
      },
      {places.input.buffer, places.aux.buffer, places.addend.buffer, places.output.buffer,
       workspace},
      TrafficOf(product, taken.node));
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerLinear(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const bool is_exact =
      output == lowering.step().graph.logits && lowering.Channels(output) <= kExactLogitsMax;
  const Type type = is_exact ? Type::kF32 : lowering.target().type;
  const void* bias = nullptr;
  if (node.inputs.size() > 2) {
    bias = type == Type::kF32 ? lowering.Parameter(node.inputs[2])
                              : lowering.weights().copy({node.inputs[2]}).data;
  }
  return EmitProduct(lowering, node, !lowering.value(node.inputs[1]).is_transposed, type, bias);
}

absl::Status LowerLinearInputGradient(Lowering& lowering, const Node& node) {
  return EmitProduct(lowering, node, lowering.value(node.inputs[1]).is_transposed,
                     lowering.target().type, nullptr);
}

absl::Status LowerLinearParameterGradient(Lowering& lowering, const Node& node) {
  const ValueId gradient = node.outputs[0];
  const bool has_bias = node.outputs.size() > 1;
  // In f32, a call of its own sums up the gradient of the bias.
  const bool sums_dy = has_bias && lowering.target().type != Type::kF32;
  // dweight [out, in] = dy^T x. For a transposed weight it is [in, out] = x^T dy.
  const bool is_transposed = lowering.value(lowering.value(gradient).primal).is_transposed;
  const ValueId left = is_transposed ? node.inputs[1] : node.inputs[0];
  const ValueId right = is_transposed ? node.inputs[0] : node.inputs[1];
  const Place a = lowering.PlaceOf(left);
  const Place b = lowering.PlaceOf(right);
  blas::MatmulProblem problem = {.m = lowering.Channels(left),
                                 .n = lowering.Channels(right),
                                 .k = lowering.Pixels(left),
                                 .a_transposed = true,
                                 .input = lowering.target().type,
                                 .output = Type::kF32,
                                 .a_stride = a.stride,
                                 .b_stride = b.stride,
                                 .d_stride = lowering.Channels(right),
                                 .tf32 = lowering.target().tf32};
  if (sums_dy) problem.summed = is_transposed ? blas::Summed::kB : blas::Summed::kA;
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const writing, FindProduct(lowering, problem));
  problem.adds = true;
  TY_ASSIGN_OR_RETURN(const blas::Matmul* const adding, FindProduct(lowering, problem));
  const BufferId workspace =
      lowering.AddScratch(std::max(WorkspaceOf(writing), WorkspaceOf(adding)));
  blas::MatmulMemory memory = {.d = lowering.Sums(gradient)};
  if (sums_dy) memory.sums = lowering.Sums(node.outputs[1]);
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        blas::MatmulMemory at = memory;
        at.a = program->At(a).data;
        at.b = program->At(b).data;
        at.workspace = program->ptr<void>(workspace);
        if (sums_dy) at.tickets = how.tickets;
        return (how.adds ? adding : writing)->Run(at, how.stream);
      },
      {a.buffer, b.buffer, workspace}, TrafficOf(node.adds ? adding : writing, nullptr));
  if (has_bias && !sums_dy) lowering.EmitBiasGradient(node, node.inputs[0], 0, node.outputs[1]);
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
