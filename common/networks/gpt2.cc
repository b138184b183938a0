// Writes GPT-2, block by block.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/networks/networks.h"
#include "common/networks/stack_writer.h"

namespace trainyard::networks {
namespace {

// Adds x + dropout(attention(norm(x))), then x + dropout(mlp(norm(x))), in pre-activation form, [T,
// width].
class BlockWriter {
 public:
  BlockWriter(StackWriter& writer, const Gpt2Spec& spec, const std::string& name)
      : writer_(writer), spec_(spec), name_(name) {}

  LayerId operator()(LayerId x) {
    LayerId y = Linear(".attn.c_attn", Norm(".ln_1", x), 3 * spec_.width);
    y = writer_.Add(layers::Attention{.heads = spec_.heads}, {y});
    x = EndHalf(x, Linear(".attn.c_proj", y, spec_.width));

    y = Linear(".mlp.c_fc", Norm(".ln_2", x), 4 * spec_.width);
    y = writer_.Add(layers::Gelu{.tanh = true}, {y});
    return EndHalf(x, Linear(".mlp.c_proj", y, spec_.width));
  }

 private:
  LayerId Norm(const char* suffix, LayerId x) {
    return writer_.Add(layers::LayerNorm(), {x}, name_ + suffix);
  }
  LayerId Linear(const char* suffix, LayerId x, int64_t features) {
    return writer_.Add(layers::Linear{.features = features, .is_transposed = true}, {x},
                       name_ + suffix);
  }
  LayerId EndHalf(LayerId x, LayerId y) {
    return writer_.Sum(x, writer_.Dropout(y, spec_.dropout));
  }

  StackWriter& writer_;
  const Gpt2Spec& spec_;
  const std::string& name_;
};

}  // namespace

absl::StatusOr<layers::Stack> StackOf(const Gpt2Spec& spec) {
  if (spec.layers < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpt2 with ", spec.layers, " layers; expected at least 1"));
  }
  if (spec.heads < 1 || spec.width % spec.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("gpt2 of width ", spec.width, " with ",
                                                   spec.heads, " heads; expected a divisor of the ",
                                                   "width"));
  }
  constexpr char kTokens[] = "transformer.wte";
  StackWriter writer({spec.context}, spec.vocabulary);
  LayerId x = writer.Add(layers::Embedding{.width = spec.width}, {writer.sample()}, kTokens);
  x = writer.Add(layers::Plain::kPositionEmbedding, {x}, "transformer.wpe");
  x = writer.Dropout(x, spec.dropout);
  for (int64_t i = 0; i < spec.layers; ++i) {
    x = BlockWriter(writer, spec, absl::StrCat("transformer.h.", i))(x);
  }
  x = writer.Add(layers::LayerNorm(), {x}, "transformer.ln_f");
  writer.Add(layers::Linear{.features = spec.vocabulary, .bias = false, .tied_to = kTokens}, {x},
             "lm_head");
  return std::move(writer).Finish();
}

}  // namespace trainyard::networks
