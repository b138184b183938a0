// Lists patterns of convolutions and of attention.
#include <utility>

#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/conv_graph.h"
#include "worker/engine/backend/cuda/probe/patterns.h"

namespace trainyard::engine::cuda::probe {
namespace {

using dnn::ConvProblem;
using dnn::Graph;
using dnn::GraphBuilder;
using dnn::Of;
using Handle = GraphBuilder::Handle;

Pattern OfPlanner(std::string name, const std::function<void(ConvProblem&)>& change) {
  return {std::move(name), [change](Type type, bool tf32, cudnnHandle_t handle) {
            ConvProblem problem;
            problem.type = type;
            problem.tf32 = tf32;
            problem.rows = kRows;
            problem.channels = problem.out_channels = kChannels;
            problem.x_stride = problem.y_stride = kChannels;
            problem.height = problem.width = problem.out_height = problem.out_width = kSize;
            problem.kernel = 3;
            problem.padding = 1;
            change(problem);
            return dnn::BuildConvGraph(problem, handle);
          }};
}

Pattern OfAttention(std::string name, bool is_gradient, bool deterministic) {
  return {std::move(name), [=](Type type, bool, cudnnHandle_t handle) {
            return dnn::BuildAttentionGraph({.is_gradient = is_gradient,
                                             .type = type,
                                             .rows = 4,
                                             .positions = 1024,
                                             .heads = 12,
                                             .width = 64},
                                            deterministic, handle);
          }};
}

// Queries, keys, values, the output or their gradients in the unified operations are [4, 12, 1024,
// 64].
Handle Heads(GraphBuilder& builder, Type type, const char* name) {
  dnn::Tensor tensor = {.type = dnn::DataType(type), .shape = {4, 12, 1024, 64}};
  tensor.strides = dnn::PackedStrides(tensor.shape);
  return builder.Add(tensor, name);
}

Handle Logsum(GraphBuilder& builder) {
  dnn::Tensor tensor = {.shape = {4, 12, 1024, 1}};
  tensor.strides = dnn::PackedStrides(tensor.shape);
  return builder.Add(tensor, "logsum");
}

absl::StatusOr<Graph> UnifiedForward(Type type, bool, cudnnHandle_t handle) {
  GraphBuilder builder;
  builder.Operation(
      CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "unified attention",
      {Of(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, Heads(builder, type, "queries")),
       Of(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, Heads(builder, type, "keys")),
       Of(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, Heads(builder, type, "values")),
       Of(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, Heads(builder, type, "y")),
       Of(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, Logsum(builder)),
       Of(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, builder.AddScalar(0.125F, "scale"))});
  return std::move(builder).Finish(handle);
}

absl::StatusOr<Graph> UnifiedGradient(Type type, bool, cudnnHandle_t handle) {
  GraphBuilder builder;
  builder.Operation(
      CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR, "unified attention gradient",
      {Of(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, Heads(builder, type, "queries")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, Heads(builder, type, "keys")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, Heads(builder, type, "values")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, Heads(builder, type, "y")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, Heads(builder, type, "dy")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, Logsum(builder)),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, builder.AddScalar(0.125F, "scale")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, Heads(builder, type, "dq")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, Heads(builder, type, "dk")),
       Of(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, Heads(builder, type, "dv"))});
  return std::move(builder).Finish(handle);
}

}  // namespace

std::vector<Pattern> ConvPatterns() {
  const auto weight_gradient = [](ConvProblem& p) { p.kind = ConvProblem::Kind::kWeightGradient; };
  return {OfPlanner("conv", [](ConvProblem&) {}),
          OfPlanner("conv + bias", [](ConvProblem& p) { p.bias = true; }),
          OfPlanner("conv + bias + relu", [](ConvProblem& p) { p.bias = p.relu = true; }),
          OfPlanner("conv + relu", [](ConvProblem& p) { p.relu = true; }),
          OfPlanner("conv + genstats", [](ConvProblem& p) { p.statistics = true; }),
          OfPlanner("conv into a part of a wider y", [](ConvProblem& p) { p.y_stride = 192; }),
          OfPlanner("conv, 4 groups", [](ConvProblem& p) { p.groups = 4; }),
          OfPlanner("conv, dilation 2", [](ConvProblem& p) { p.dilation = p.padding = 2; }),
          OfPlanner("dgrad", [](ConvProblem& p) { p.kind = ConvProblem::Kind::kInputGradient; }),
          OfPlanner("wgrad", weight_gradient),
          OfPlanner("wgrad, f32 gradient",
                    [=](ConvProblem& p) {
                      weight_gradient(p);
                      p.f32_gradient = true;
                    }),
          OfPlanner("wgrad, f32 gradient, 4 groups", [=](ConvProblem& p) {
            weight_gradient(p);
            p.f32_gradient = true;
            p.groups = 4;
          })};
}

std::vector<Pattern> FusedConvPatterns() {
  return {OfPlanner("scale + bias + relu + conv + genstats",
                    [](ConvProblem& p) { p.normalises = p.statistics = true; }),
          OfPlanner("dgrad + relu gradient + batch norm's weights",
                    [](ConvProblem& p) {
                      p.kind = ConvProblem::Kind::kInputGradient;
                      p.norm_sums = true;
                    }),
          OfPlanner("scale + bias + relu + wgrad", [](ConvProblem& p) {
            p.kind = ConvProblem::Kind::kWeightGradient;
            p.normalises = true;
          })};
}

std::vector<Pattern> AttentionPatterns() {
  return {OfAttention("causal attention", false, false),
          OfAttention("causal attention gradient", true, false),
          OfAttention("causal attention gradient, deterministic", true, true),
          {"unified attention, no mask", UnifiedForward},
          {"unified attention gradient, no mask", UnifiedGradient}};
}

}  // namespace trainyard::engine::cuda::probe
