// Expresses attention and its gradient as the operations that cuDNN recognises.
#include "worker/engine/backend/cuda/dnn/attention_graph.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainyard::engine::cuda::dnn {
namespace {

using Handle = GraphBuilder::Handle;

// The tensors of one problem. Dimensions are [rows, heads, positions, width], or with the last two
// exchanged; scores are [rows, heads, positions of queries, positions of keys].
class AttentionGraph {
 public:
  explicit AttentionGraph(const AttentionProblem& problem) : p_(problem) {}

  absl::StatusOr<Graph> Forward(cudnnHandle_t handle) &&;
  absl::StatusOr<Graph> Gradient(bool deterministic, cudnnHandle_t handle) &&;

 private:
  // Adds one of the three parts of x, or of dx.
  Handle Packed(int64_t id, absl::string_view name, bool transposed) {
    const int64_t pixel = 3 * p_.heads * p_.width;
    return Heads(id, name, pixel, transposed, /*is_virtual=*/false);
  }
  // Adds y or dy.
  Handle Output(int64_t id, absl::string_view name) {
    return Heads(id, name, p_.heads * p_.width, /*transposed=*/false, /*is_virtual=*/false);
  }
  Handle Heads(int64_t id, absl::string_view name, int64_t pixel, bool transposed,
               bool is_virtual) {
    Tensor tensor = {.id = id,
                     .type = DataType(p_.type),
                     .shape = {p_.rows, p_.heads, p_.positions, p_.width},
                     .strides = {p_.positions * pixel, p_.width, pixel, 1},
                     .is_virtual = is_virtual};
    if (transposed) {
      std::swap(tensor.shape[2], tensor.shape[3]);
      std::swap(tensor.strides[2], tensor.strides[3]);
    }
    return builder_.Add(tensor, name);
  }
  // Adds one number for each query: f32 [rows, heads, positions, 1].
  Tensor PerQuery(int64_t id = 0) const {
    Tensor tensor = {.id = id, .shape = {p_.rows, p_.heads, p_.positions, 1}};
    tensor.strides = PackedStrides(tensor.shape);
    tensor.is_virtual = id == 0;
    return tensor;
  }
  Handle Scores(absl::string_view name, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    Tensor tensor = {
        .type = type, .shape = {p_.rows, p_.heads, p_.positions, p_.positions}, .is_virtual = true};
    tensor.strides = PackedStrides(tensor.shape);
    return builder_.Add(tensor, name);
  }
  // Scores with queries and keys exchanged, in the type of the products that read them.
  Handle Transposed(absl::string_view name, Handle scores) {
    Tensor tensor = {.type = DataType(p_.type),
                     .shape = {p_.rows, p_.heads, p_.positions, p_.positions},
                     .is_virtual = true};
    tensor.strides = PackedStrides(tensor.shape);
    std::swap(tensor.strides[2], tensor.strides[3]);
    const Handle transposed = builder_.Add(tensor, name);
    builder_.Reshape(name, scores, transposed);
    return transposed;
  }
  Handle Apply(cudnnPointwiseMode_t mode, absl::string_view name, Handle x, Handle b = nullptr) {
    const Handle y = Scores(name);
    builder_.Pointwise(mode, name, x, b, y);
    return y;
  }
  // Replaces a score by minus infinity if the key comes after its query.
  Handle Masked(Handle scores) {
    const Handle row = Scores("position of the query", CUDNN_DATA_INT32);
    const Handle column = Scores("position of the key", CUDNN_DATA_INT32);
    const Handle visible = Scores("visible", CUDNN_DATA_BOOLEAN);
    const Handle masked = Scores("masked");
    builder_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, "row", scores, nullptr, row, nullptr, 2);
    builder_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, "column", scores, nullptr, column, nullptr, 3);
    builder_.Pointwise(CUDNN_POINTWISE_CMP_GE, "causal", row, column, visible);
    const Handle nothing =
        builder_.AddScalar(-std::numeric_limits<float>::infinity(), "minus infinity");
    builder_.Pointwise(CUDNN_POINTWISE_BINARY_SELECT, "mask", scores, nothing, masked, visible);
    return masked;
  }
  float Scale() const { return 1.0F / std::sqrt(static_cast<float>(p_.width)); }
  // Queries, keys and values are parts of one tensor, and so are their gradients.
  absl::StatusOr<Graph> Finish(cudnnHandle_t handle) {
    absl::StatusOr<Graph> graph = std::move(builder_).Finish(handle);
    if (!graph.ok()) return graph;
    const int64_t part_bytes = p_.heads * p_.width * SizeOf(p_.type);
    for (Slot& slot : graph->slots) {
      for (const int64_t first : {kQuery, kQueryGradient}) {
        if (slot.id <= first || slot.id > first + 2) continue;
        slot.whole = first;
        slot.offset = (slot.id - first) * part_bytes;
      }
    }
    return graph;
  }

  AttentionProblem p_;
  GraphBuilder builder_;
};

absl::StatusOr<Graph> AttentionGraph::Forward(cudnnHandle_t handle) && {
  const Handle query = Packed(kQuery, "queries", false);
  const Handle key = Packed(kKey, "keys", true);
  const Handle value = Packed(kValue, "values", false);
  const Handle products = Scores("products");
  builder_.Matmul("products", query, key, products);
  const Handle scale = builder_.AddScalar(Scale(), "scale");
  const Handle scores = Masked(Apply(CUDNN_POINTWISE_MUL, "scores", products, scale));

  // softmax: exp(s - max) / sum; logsum = max + log(sum).
  const Handle largest = builder_.Add(PerQuery(), "largest");
  builder_.Reduce(CUDNN_REDUCE_TENSOR_MAX, "largest", scores, largest);
  const Handle exponentials =
      Apply(CUDNN_POINTWISE_EXP, "exponentials",
            Apply(CUDNN_POINTWISE_SUB, "less the largest", scores, largest));
  const Handle sum = builder_.Add(PerQuery(), "sum");
  builder_.Reduce(CUDNN_REDUCE_TENSOR_ADD, "sum", exponentials, sum);
  const Handle log = builder_.Add(PerQuery(), "log");
  builder_.Pointwise(CUDNN_POINTWISE_LOG, "log", sum, nullptr, log);
  builder_.Pointwise(CUDNN_POINTWISE_ADD, "logsum", largest, log,
                     builder_.Add(PerQuery(kLogsum), "logsum"));
  const Handle weights = Scores("weights", DataType(p_.type));
  builder_.Pointwise(CUDNN_POINTWISE_DIV, "weights", exponentials, sum, weights);
  builder_.Matmul("output", weights, value, Output(kOutput, "y"));
  return Finish(handle);
}

// With weights w: dv = w^T dy; dw = dy v^T; ds = w (dw - sum of dy y) / sqrt(width); dq = ds k; dk
// = ds^T q (Dao et al. 2022, appendix B.2).
absl::StatusOr<Graph> AttentionGraph::Gradient(bool deterministic, cudnnHandle_t handle) && {
  const Handle query = Packed(kQuery, "queries", false);
  const Handle key = Packed(kKey, "keys", true);
  const Handle value = Packed(kValue, "values", true);
  const Handle y = Output(kOutput, "y");
  const Handle dy = Output(kOutputGradient, "dy");
  const Handle logsum = builder_.Add(PerQuery(kLogsum), "logsum");
  const Handle scale = builder_.AddScalar(Scale(), "scale");

  Tensor product = {.shape = {p_.rows, p_.heads, p_.positions, p_.width}, .is_virtual = true};
  product.strides = PackedStrides(product.shape);
  const Handle dy_y = builder_.Add(product, "dy y");
  builder_.Pointwise(CUDNN_POINTWISE_MUL, "dy y", dy, y, dy_y);
  const Handle reduced = builder_.Add(PerQuery(), "sum of dy y");
  builder_.Reduce(CUDNN_REDUCE_TENSOR_ADD, "sum of dy y", dy_y, reduced);
  // cuDNN's engine wants this sum in memory, and a multiplication by a scalar that produces it.
  Tensor correction_tensor = PerQuery();
  correction_tensor.is_virtual = false;
  correction_tensor.is_temporary = true;
  const Handle correction = builder_.Add(correction_tensor, "correction");
  builder_.Pointwise(CUDNN_POINTWISE_MUL, "correction", reduced, builder_.AddScalar(1, "one"),
                     correction);

  const Handle products = Scores("products");
  builder_.Matmul("products", query, key, products);
  const Handle scores = Apply(CUDNN_POINTWISE_MUL, "scores", products, scale);
  const Handle weights = Apply(CUDNN_POINTWISE_EXP, "weights",
                               Masked(Apply(CUDNN_POINTWISE_SUB, "less logsum", scores, logsum)));
  builder_.Matmul("dv", Transposed("weights transposed", weights), dy,
                  Packed(kValueGradient, "dv", false));

  const Handle dweights = Scores("dweights");
  builder_.Matmul("dweights", dy, value, dweights);
  const Handle centred = Apply(CUDNN_POINTWISE_SUB, "centred", dweights, correction);
  const Handle dscores = Apply(CUDNN_POINTWISE_MUL, "dscores",
                               Apply(CUDNN_POINTWISE_MUL, "weighed", centred, weights), scale);
  builder_.Matmul("dk", Transposed("dscores transposed", dscores), query,
                  Packed(kKeyGradient, "dk", false));

  const Handle key_rows =
      Heads(0, "keys by position", 3 * p_.heads * p_.width, /*transposed=*/false, true);
  builder_.Reshape("keys by position", key, key_rows);
  const Handle dq = Packed(kQueryGradient, "dq", false);
  if (deterministic) {
    builder_.Matmul("dq", dscores, key_rows, dq);
    return Finish(handle);
  }
  product.is_virtual = false;
  product.is_temporary = true;
  const Handle sums = builder_.Add(product, "sums of dq");
  builder_.Matmul("dq", dscores, key_rows, sums);
  builder_.Pointwise(CUDNN_POINTWISE_IDENTITY, "dq", sums, nullptr, dq);
  return Finish(handle);
}

}  // namespace

absl::StatusOr<Graph> BuildAttentionGraph(const AttentionProblem& problem, bool deterministic,
                                          cudnnHandle_t handle) {
  if (!problem.is_safe()) {
    return absl::UnimplementedError(
        "cuDNN's attention is right for types of 16 bits, positions that are multiples of 128, and "
        "heads whose width is a multiple of 8 and at most 128");
  }
  // Before this version, the caller had to clear what is summed in memory.
  constexpr size_t kVersionMin = 90600;
  if (problem.is_gradient && cudnnGetVersion() < kVersionMin) {
    return absl::UnimplementedError(absl::StrCat("attention's gradient takes cuDNN ", kVersionMin,
                                                 " or newer, not ", cudnnGetVersion()));
  }
  AttentionGraph graph(problem);
  return problem.is_gradient ? std::move(graph).Gradient(deterministic, handle)
                             : std::move(graph).Forward(handle);
}

}  // namespace trainyard::engine::cuda::dnn
