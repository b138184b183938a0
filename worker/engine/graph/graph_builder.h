// Builds the forward graph of a model, layer by layer, and infers the shapes.
//
//   GraphBuilder builder({1, 28, 28});
//   ValueId x = builder.Conv2d("conv1", builder.input(), {.out_channels = 32, .kernel = 3});
//   builder.SoftmaxCrossEntropy(builder.Linear("fc", builder.Flatten(builder.Relu(x)), 10));
//   absl::StatusOr<Graph> graph = std::move(builder).Build();
//
// An error stays until Build(), which returns the first: INVALID_ARGUMENT with the layer's name and
// the shapes. Layer names are PyTorch module names; parameters are `<layer>.weight` and so on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

struct Conv2dOptions {
  int64_t out_channels = 1;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

struct PoolOptions {
  int64_t kernel = 2;
  int64_t stride = 0;  // 0: the kernel
  int64_t padding = 0;
  // A last window that reaches over the padded input is kept (its size rounded up, not down).
  bool ceil_mode = false;
  // avg_pool: padding counts as zeros; otherwise the mean is over what lies in the input.
  bool count_padding = true;
};

struct LrnOptions {
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
};

// The largest pooling window: its positions must fit the byte in which backends keep the maximum's.
inline constexpr int64_t kMaxPoolKernel = 15;

class GraphBuilder {
 public:
  // Shape of one row: [features] or [channels, height, width].
  explicit GraphBuilder(Shape input);

  ValueId input() const { return graph_.input; }

  // x: [C, H, W] -> [out_channels, H', W'] with H' = (H + 2 padding - dilation (kernel-1) - 1) /
  // stride + 1. Weight [out_channels, C / groups, kernel, kernel], bias [out_channels].
  ValueId Conv2d(absl::string_view name, ValueId x, const Conv2dOptions& options);
  // x: [in] -> [out]. Weight [out, in], bias [out].
  ValueId Linear(absl::string_view name, ValueId x, int64_t out_features, bool bias = true);
  // x: [C, H, W], normalised over rows, H and W. Weight, bias, running_mean, running_var: [C].
  ValueId BatchNorm(absl::string_view name, ValueId x, double eps = 1e-5, double momentum = 0.1);
  ValueId Relu(ValueId x);
  ValueId Tanh(ValueId x);
  ValueId Sigmoid(ValueId x);
  // x times the normal distribution function at x; or that by a tanh, as GPT-2 does.
  ValueId Gelu(ValueId x, bool tanh_approximation = false);
  // Zero with probability `rate`, in [0, 1), and scaled by 1 / (1 - rate) otherwise; nothing in an
  // evaluation. Rate 0 gives x itself.
  ValueId Dropout(ValueId x, double rate);
  // Two or more values [C_i, H, W], or [F_i], one after the other along the first dimension.
  ValueId Concat(const std::vector<ValueId>& parts);
  // x: [C, H, W], each element divided by a power of the mean square of its `size` channels.
  ValueId Lrn(ValueId x, const LrnOptions& options);
  // Two values of one shape.
  ValueId Add(ValueId a, ValueId b);
  // -> [elements], in NCHW order.
  ValueId Flatten(ValueId x);
  // x: [C, H, W] -> [C, H', W'], H' = (H + 2 padding - kernel) / stride + 1. Padding at most half
  // the kernel; it never is the maximum, and counts in the average unless told not to.
  ValueId MaxPool(ValueId x, const PoolOptions& options);
  ValueId AvgPool(ValueId x, const PoolOptions& options);
  // x: [C, H, W] -> [C, 1, 1].
  ValueId GlobalAvgPool(ValueId x);
  // The loss: mean over the rows of -log softmax(logits)[label]. logits: [classes]. Once, at the
  // end. With label_smoothing s in [0, 1) every class gets s / classes of the target, in training:
  // an evaluation measures against the labels alone.
  void SoftmaxCrossEntropy(ValueId logits, double label_smoothing = 0);

  // Every value must have been used, the loss be there.
  absl::StatusOr<Graph> Build() &&;

 private:
  bool ok() const { return status_.ok(); }
  // Keeps the first error, as `layer 'name': message`.
  ValueId Fail(absl::string_view name, absl::string_view message);
  // True where x is an activation (or the input) of `rank` dimensions; fails otherwise.
  bool CheckInput(absl::string_view name, ValueId x, size_t rank);
  bool CheckNewLayer(absl::string_view name);
  const Shape& shape(ValueId id) const { return graph_.value(id).shape; }
  ValueId AddParameter(absl::string_view layer, absl::string_view suffix, Shape shape);
  ValueId AddBuffer(absl::string_view layer, absl::string_view suffix, Shape shape);
  // "relu3" for layers that the model does not name.
  std::string AutoName(absl::string_view op);
  // Adds the node with one output of this shape, named after the layer.
  ValueId AddNode(Node node, Shape output);
  ValueId Pool(OpKind op, ValueId x, const PoolOptions& options);

  Graph graph_;
  absl::Status status_;
  std::vector<std::string> layers_;
};

}  // namespace trainyard::engine
