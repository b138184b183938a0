// lrn: local response normalisation across channels (Krizhevsky et al. 2012, section 3.3), with
// torch.nn.LocalResponseNorm's scale:
//   (x [C, H, W]) -> y = x s^-beta,  s_c = k + alpha / size * sum of x_d^2 over the window of c,
//     channels d in [c - size / 2, c + (size - 1) / 2] that exist
//   gradient  (dy, x) -> dx_c = dy_c s_c^-beta
//     - 2 alpha beta / size * x_c * sum of dy_d x_d s_d^(-beta - 1) over those d whose window has c
//   The gradient computes s again: that costs less than to keep it.
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

// The cost is an addition for each channel of the window, and a power of about 20 operations.
double ForwardFlops(const Graph& graph, const Node& node, int64_t rows) {
  return static_cast<double>(graph.value(node.inputs[0]).Elements(rows)) *
         static_cast<double>(node.layer<layers::Lrn>().size + 20);
}

double GradientFlops(const Graph& graph, const Node& node, int64_t rows) {
  return static_cast<double>(graph.value(node.inputs[0]).Elements(rows)) *
         static_cast<double>(2 * node.layer<layers::Lrn>().size + 30);
}

void Gradient(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kLrnGradient, {node.inputs[0]});
}

}  // namespace

const OpDefinition kLrnDefinition = {.flops = ForwardFlops, .gradient = Gradient};
const OpDefinition kLrnGradientDefinition = {.flops = GradientFlops};

ValueId GraphBuilder::Lrn(ValueId x, const layers::Lrn& options) {
  const std::string name = AutoName("lrn");
  if (!CheckInput(name, x, 3)) {
    return kNoValue;
  }
  // A larger window than this covers all channels of any reasonable layer.
  constexpr int64_t kMaxSize = 4096;
  if (options.size < 1 || options.size > kMaxSize || !(options.alpha >= 0) ||
      !(options.beta >= 0) || !(options.k > 0)) {
    return Fail(name, absl::StrCat("lrn over ", options.size, " channels with alpha ",
                                   options.alpha, ", beta ", options.beta, ", k ", options.k,
                                   "; expected a window in [1, ", kMaxSize,
                                   "], alpha and beta not negative, k above 0"));
  }
  return AddNode({OpKind::kLrn, name, {x}, {}, options}, shape(x));
}

}  // namespace trainyard::engine
