// Finalizes descriptors: checks their references, and compiles what they describe.
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/attributes.h"
#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"
#include "tests/testing/cuda_on_cpu/cudnn/program.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Compile = cudnnStatus_t (*)(const Descriptor&, Operation*);

Compile CompilerOf(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return CompileConvolution;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return CompilePointwise;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return CompileReduction;
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
      return CompileGenStats;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return CompileReshape;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return CompileMatmul;
    case CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR:
      return CompileFinalizeStatistics;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
      return CompileNormForward;
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      return CompileNormBackward;
    case CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR:
      return CompileNormSums;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
      return CompileResample;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
      return CompileAttentionForward;
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR:
      return CompileAttentionBackward;
    default:
      return nullptr;
  }
}

// The type of descriptor to which an attribute must refer; by default a tensor.
cudnnBackendDescriptorType_t ReferredType(cudnnBackendAttributeName_t name) {
  switch (name) {
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC:
      return CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR:
      return CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_REDUCTION_DESC:
      return CUDNN_BACKEND_REDUCTION_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_MATMUL_DESC:
      return CUDNN_BACKEND_MATMUL_DESCRIPTOR;
    case CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC:
    case CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC:
      return CUDNN_BACKEND_RESAMPLE_DESCRIPTOR;
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
    case CUDNN_ATTR_ENGINE_OPERATION_GRAPH:
      return CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
    case CUDNN_ATTR_ENGINEHEUR_DEVICEPROP:
    case CUDNN_ATTR_ENGINE_DEVICEPROP:
    case CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP:
      return CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
    case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
      return CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    default:
      return CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  }
}

cudnnStatus_t CheckAttributes(const DescriptorRule& rule, const Descriptor& descriptor) {
  for (const AttributeRule& attribute : rule.attributes) {
    const auto found = descriptor.values.find(attribute.name);
    if (found == descriptor.values.end()) {
      if (attribute.use == AttributeRule::Use::kRequired) {
        return Fail(CUDNN_STATUS_BAD_PARAM,
                    absl::StrCat(rule.label, " lacks attribute ", attribute.label));
      }
      continue;
    }
    // The operations of a graph are distinguished where it is compiled.
    if (attribute.name == CUDNN_ATTR_OPERATIONGRAPH_OPS) {
      continue;
    }
    for (const auto& child : found->second.children) {
      if (child->type != ReferredType(attribute.name)) {
        return Fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                    absl::StrCat(attribute.label, " refers to a ", RuleOf(child->type)->label));
      }
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeOperation(Compile compile, Descriptor* descriptor) {
  auto operation = std::make_shared<Operation>();
  operation->type = descriptor->type;
  TY_CUDNN_TRY(compile(*descriptor, operation.get()));
  descriptor->operation = std::move(operation);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizeByType(Descriptor* descriptor) {
  if (const Compile compile = CompilerOf(descriptor->type); compile != nullptr) {
    return FinalizeOperation(compile, descriptor);
  }
  switch (descriptor->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return CheckTensor(*descriptor);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return FinalizeGraph(descriptor);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return FinalizeHeuristics(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return FinalizeEngine(descriptor);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return FinalizeEngineConfig(descriptor);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return FinalizePlan(descriptor);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return FinalizeVariantPack(descriptor);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR:
      return FinalizeDevice(descriptor);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

}  // namespace

cudnnStatus_t Finalize(Descriptor* descriptor) {
  if (descriptor->is_finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "the descriptor was finalized before");
  }
  TY_CUDNN_TRY(CheckAttributes(*RuleOf(descriptor->type), *descriptor));
  TY_CUDNN_TRY(FinalizeByType(descriptor));
  descriptor->is_finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
