// upsample, to the nearest neighbour, by an integer:
//   (x [C, H, W]) -> y [C, scale H, scale W],  y_hw = x_(h / scale)(w / scale), rounded down
//   gradient  (dy) -> dx, each element the sum of those of dy that it went to
#include "absl/strings/str_cat.h"
#include "worker/engine/graph/autodiff.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/graph/ops/ops.h"

namespace trainyard::engine {
namespace {

void Gradient(Autodiff& autodiff, const Node& node) {
  autodiff.EmitInputGradient(node, OpKind::kUpsampleGradient);
}

}  // namespace

const OpDefinition kUpsampleDefinition = {.flops = Nothing, .gradient = Gradient};
const OpDefinition kUpsampleGradientDefinition = {.flops = FlopsPerElement<1>};

ValueId GraphBuilder::Layer(absl::string_view, ValueId x, const layers::Upsample& options) {
  const std::string name = AutoName("upsample");
  if (!CheckInput(name, x, 3)) {
    return kNoValue;
  }
  // No image of a reasonable layer grows by more.
  constexpr int64_t kMaxScale = 1024;
  if (options.scale < 1 || options.scale > kMaxScale) {
    return Fail(name, absl::StrCat("scale ", options.scale, "; expected [1, ", kMaxScale, "]"));
  }
  const Shape in = shape(x);
  return AddNode({OpKind::kUpsample, name, {x}, {}, options},
                 {in[0], in[1] * options.scale, in[2] * options.scale});
}

}  // namespace trainyard::engine
