// Builds GPT-2, block by block.
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/initializers.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

constexpr double kStddev = 0.02;

// Adds x + dropout(attention(norm(x))), then x + dropout(mlp(norm(x))), in pre-activation form, [T,
// width].
ValueId AddBlock(GraphBuilder& builder, const Gpt2Spec& spec, const std::string& name, ValueId x) {
  const auto layer = [&name](const char* suffix) { return absl::StrCat(name, suffix); };
  const double stddev = kStddev / std::sqrt(2.0 * static_cast<double>(spec.layers));

  ValueId y = builder.LayerNorm(layer(".ln_1"), x);
  y = builder.TransposedLinear(layer(".attn.c_attn"), y, 3 * spec.width, kStddev);
  y = builder.Attention(y, spec.heads);
  y = builder.TransposedLinear(layer(".attn.c_proj"), y, spec.width, stddev);
  x = builder.Add(x, builder.Dropout(y, spec.dropout));

  y = builder.LayerNorm(layer(".ln_2"), x);
  y = builder.TransposedLinear(layer(".mlp.c_fc"), y, 4 * spec.width, kStddev);
  y = builder.Gelu(y, {.tanh = true});
  y = builder.TransposedLinear(layer(".mlp.c_proj"), y, spec.width, stddev);
  return builder.Add(x, builder.Dropout(y, spec.dropout));
}

}  // namespace

absl::StatusOr<Graph> BuildGpt2(const Gpt2Spec& spec) {
  if (spec.layers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpt2 with ", spec.layers, " layers; expected at least 1"));
  }
  if (spec.heads < 1 || spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("gpt2 of width ", spec.width, " with ",
                                                   spec.heads, " heads; expected a divisor of the ",
                                                   "width"));
  }
  GraphBuilder builder = GraphBuilder::ForTokens(spec.context, spec.vocabulary);
  ValueId x = builder.Embedding("transformer.wte", builder.input(), spec.width);
  x = builder.PositionEmbedding("transformer.wpe", x, spec.context);
  x = builder.Dropout(x, spec.dropout);
  for (int64_t i = 0; i < spec.layers; ++i) {
    x = AddBlock(builder, spec, absl::StrCat("transformer.h.", i), x);
  }
  x = builder.LayerNorm("transformer.ln_f", x);
  builder.SoftmaxCrossEntropy(builder.TiedLinear("lm_head", x, "transformer.wte"));
  absl::StatusOr<Graph> graph = std::move(builder).Build();
  if (graph.ok()) InitializeEmbeddings(*graph, kStddev);
  return graph;
}

}  // namespace trainyard::engine
