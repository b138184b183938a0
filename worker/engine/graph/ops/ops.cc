#include "worker/engine/graph/ops/ops.h"

#include "common/base/check.h"

namespace trainyard::engine {

const OpDefinition& Definition(OpKind op) {
  switch (op) {
    case OpKind::kConv2d:
      return kConv2dDefinition;
    case OpKind::kLinear:
      return kLinearDefinition;
    case OpKind::kBatchNorm:
      return kBatchNormDefinition;
    case OpKind::kRelu:
      return kReluDefinition;
    case OpKind::kTanh:
      return kTanhDefinition;
    case OpKind::kSigmoid:
      return kSigmoidDefinition;
    case OpKind::kGelu:
      return kGeluDefinition;
    case OpKind::kDropout:
      return kDropoutDefinition;
    case OpKind::kConcat:
      return kConcatDefinition;
    case OpKind::kLrn:
      return kLrnDefinition;
    case OpKind::kLayerNorm:
      return kLayerNormDefinition;
    case OpKind::kEmbedding:
      return kEmbeddingDefinition;
    case OpKind::kPositionEmbedding:
      return kPositionEmbeddingDefinition;
    case OpKind::kAttention:
      return kAttentionDefinition;
    case OpKind::kAdd:
      return kAddDefinition;
    case OpKind::kFlatten:
      return kFlattenDefinition;
    case OpKind::kMaxPool:
      return kMaxPoolDefinition;
    case OpKind::kAvgPool:
      return kAvgPoolDefinition;
    case OpKind::kGlobalAvgPool:
      return kGlobalAvgPoolDefinition;
    case OpKind::kSoftmaxCrossEntropy:
      return kSoftmaxCrossEntropyDefinition;
    case OpKind::kStageOutput:
      return kStageOutputDefinition;
    case OpKind::kStageOutputGradient:
      return kStageOutputGradientDefinition;
    case OpKind::kConv2dInputGradient:
      return kConv2dInputGradientDefinition;
    case OpKind::kConv2dParameterGradient:
      return kConv2dParameterGradientDefinition;
    case OpKind::kLinearInputGradient:
      return kLinearInputGradientDefinition;
    case OpKind::kLinearParameterGradient:
      return kLinearParameterGradientDefinition;
    case OpKind::kBatchNormGradient:
      return kBatchNormGradientDefinition;
    case OpKind::kReluGradient:
      return kReluGradientDefinition;
    case OpKind::kTanhGradient:
      return kTanhGradientDefinition;
    case OpKind::kSigmoidGradient:
      return kSigmoidGradientDefinition;
    case OpKind::kGeluGradient:
      return kGeluGradientDefinition;
    case OpKind::kSlice:
      return kSliceDefinition;
    case OpKind::kLrnGradient:
      return kLrnGradientDefinition;
    case OpKind::kLayerNormGradient:
      return kLayerNormGradientDefinition;
    case OpKind::kEmbeddingGradient:
      return kEmbeddingGradientDefinition;
    case OpKind::kPositionEmbeddingGradient:
      return kPositionEmbeddingGradientDefinition;
    case OpKind::kAttentionGradient:
      return kAttentionGradientDefinition;
    case OpKind::kFlattenGradient:
      return kFlattenGradientDefinition;
    case OpKind::kMaxPoolGradient:
      return kMaxPoolGradientDefinition;
    case OpKind::kAvgPoolGradient:
      return kAvgPoolGradientDefinition;
    case OpKind::kGlobalAvgPoolGradient:
      return kGlobalAvgPoolGradientDefinition;
    case OpKind::kSoftmaxCrossEntropyGradient:
      return kSoftmaxCrossEntropyGradientDefinition;
  }
  CheckFailed(__FILE__, __LINE__, "unknown op");
}

}  // namespace trainyard::engine
