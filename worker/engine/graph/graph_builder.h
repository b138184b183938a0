// Builds the forward graph of a model, layer by layer, and infers the shapes.
//
//   GraphBuilder builder({1, 28, 28});
//   ValueId x = builder.Conv2d("conv1", builder.input(), {.channels = 32, .kernel = 3});
//   builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(builder.Relu(x)), 10));
//   absl::StatusOr<Graph> graph = std::move(builder).Build();
//
// An error is kept until Build(), which returns the first one: INVALID_ARGUMENT with the layer's
// name and the shapes. Layer names are PyTorch module names; parameters are `<layer>.weight` and so
// on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/layers/stack.h"
#include "common/layers/window.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

struct PoolOptions {
  int64_t kernel = 2;
  int64_t stride = 0;  // 0 means as the kernel
  int64_t padding = 0;
  // If true, a last window that reaches over the padded input is kept (its size is rounded up
  // instead of down).
  bool ceil_mode = false;
  // For avg_pool: padding counts as zeros. Otherwise the mean is over the elements that lie in the
  // input.
  bool count_padding = true;
};

using layers::kMaxPoolKernel;

class GraphBuilder {
 public:
  // `input` is the shape of one row: [features] or [channels, height, width].
  explicit GraphBuilder(Shape input);
  // Makes a builder for rows of `length` token numbers in [0, vocabulary). They come as floats, as
  // all inputs do, so vocabularies end at 2^24, up to which floats hold every integer.
  static GraphBuilder ForTokens(int64_t length, int64_t vocabulary);

  ValueId input() const { return graph_.input; }

  // x: [C, H, W] -> [channels, H', W'] with H' = (H + 2 padding - dilation (kernel-1) - 1) /
  // stride + 1. Weight [channels, C / groups, kernel, kernel], bias [channels].
  ValueId Conv2d(absl::string_view name, ValueId x, const layers::Conv2d& options);
  // x: [in] -> [out], or [T, in] -> [T, out]. Weight [out, in], bias [out].
  ValueId Linear(absl::string_view name, ValueId x, int64_t out_features, bool bias = true);
  // Adds linear with the weight [in, out], as transformers stores GPT-2's ("Conv1D").
  ValueId TransposedLinear(absl::string_view name, ValueId x, int64_t out_features);
  // x: [C, H, W], normalised over rows, H and W. Weight, bias, running_mean, running_var: [C].
  ValueId BatchNorm(absl::string_view name, ValueId x, double eps = 1e-5, double momentum = 0.1);
  ValueId Relu(ValueId x);
  ValueId Tanh(ValueId x);
  ValueId Sigmoid(ValueId x);
  // Adds x times the normal distribution function at x, or its approximation by a tanh, as GPT-2
  // has it.
  ValueId Gelu(ValueId x, const layers::Gelu& options = {});
  // Adds dropout: zero with probability `rate`, in [0, 1), and scaled by 1 / (1 - rate) otherwise.
  // An evaluation leaves it out. Rate 0 gives x itself.
  ValueId Dropout(ValueId x, double rate);
  // Concatenates two or more values [C_i, H, W], or [F_i], along the first dimension.
  ValueId Concat(const std::vector<ValueId>& parts);
  // x: [C, H, W], each element divided by a power of the mean square of its `size` channels.
  ValueId Lrn(ValueId x, const layers::Lrn& options);
  // Adds two values of the same shape.
  ValueId Add(ValueId a, ValueId b);
  // x: [width] or [T, width] -> logits of the vocabulary, by the weight of the layer `embedding`,
  // which is therefore trained by both uses. It has no bias.
  ValueId TiedLinear(absl::string_view name, ValueId x, absl::string_view embedding);
  // x: [C] or [T, C], normalised over C. Weight and bias [C].
  ValueId LayerNorm(absl::string_view name, ValueId x, double eps = 1e-5);
  // x: [C, H, W], normalised over H, W and the channels of each group. Weight and bias [C].
  ValueId Layer(absl::string_view name, ValueId x, const layers::GroupNorm& options);
  // tokens: the input, [T] -> [T, width]. Weight [vocabulary, width].
  ValueId Embedding(absl::string_view name, ValueId tokens, int64_t width);
  // x: [T, C], plus the first T rows of the weight [positions, C]. 0 positions means T.
  ValueId PositionEmbedding(absl::string_view name, ValueId x, int64_t positions = 0);
  // Adds causal scaled dot-product attention. x: [T, 3 C], with queries, keys and values of all
  // heads next to each other, as one linear layer makes them -> [T, C]. `heads` divides C.
  ValueId Attention(ValueId x, int64_t heads);
  // x: [C, H, W] -> [C, scale H, scale W], each pixel repeated. The name is not used.
  ValueId Layer(absl::string_view name, ValueId x, const layers::Upsample& options);
  // Flattens to [elements], in NCHW order.
  ValueId Flatten(ValueId x);
  // x: [C, H, W] -> [C, H', W'], H' = (H + 2 padding - kernel) / stride + 1. Padding is at most
  // half the kernel. It is never the maximum, and counts in the average unless the options exclude
  // it.
  ValueId MaxPool(ValueId x, const PoolOptions& options);
  ValueId AvgPool(ValueId x, const PoolOptions& options);
  // x: [C, H, W] -> [C, 1, 1].
  ValueId GlobalAvgPool(ValueId x);
  // Adds the loss: the mean over the rows of -log softmax(logits)[label], and over the positions of
  // a sequence. logits: [classes] or [T, classes]. It is added once, at the end. With
  // label_smoothing s in [0, 1) every class gets s / classes of the target in training; an
  // evaluation uses the labels without smoothing.
  void SoftmaxCrossEntropy(ValueId logits, double label_smoothing = 0);

  // Returns the graph. Every value must have been used, and there must be a loss.
  absl::StatusOr<Graph> Build() &&;

 private:
  bool ok() const { return status_.ok(); }
  // Keeps the first error, as `layer 'name': message`.
  ValueId Fail(absl::string_view name, absl::string_view message);
  // Returns true if x is an activation (or the input) of `rank` dimensions, and fails otherwise.
  bool CheckInput(absl::string_view name, ValueId x, size_t rank);
  // Returns true if x is features [F] or a sequence [T, F], and fails otherwise.
  bool CheckFeatures(absl::string_view name, ValueId x);
  // Returns true if x is a sequence [T, F].
  bool CheckSequence(absl::string_view name, ValueId x);
  bool CheckNewLayer(absl::string_view name);
  const Shape& shape(ValueId id) const { return graph_.value(id).shape; }
  ValueId AddParameter(absl::string_view layer, absl::string_view suffix, Shape shape);
  ValueId AddBuffer(absl::string_view layer, absl::string_view suffix, Shape shape);
  // Returns a name such as "relu3", for layers that the model does not name.
  std::string AutoName(absl::string_view op);
  // Adds the node with one output of this shape, named after the layer.
  ValueId AddNode(Node node, Shape output);
  ValueId Pool(OpKind op, ValueId x, const PoolOptions& options);

  Graph graph_;
  absl::Status status_;
  std::vector<std::string> layers_;
};

}  // namespace trainyard::engine
