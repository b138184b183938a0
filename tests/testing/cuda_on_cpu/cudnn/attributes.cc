// The table of attributes, by kind of descriptor.
#include "tests/testing/cuda_on_cpu/cudnn/attributes.h"

#include <limits>

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Use = AttributeRule::Use;

constexpr int64_t kDimensionsMax = CUDNN_DIM_MAX;
constexpr int64_t kArrayMax = std::numeric_limits<int32_t>::max();

// One row of the table: attribute, type, use, largest count. Numbers may be set as float or
// double, windows also as fractions.
#define ROW(name, type, use, count_max) \
  { CUDNN_ATTR_##name, #name, CUDNN_TYPE_##type, Use::use, count_max, CUDNN_TYPE_##type }
#define NUMBER(name) \
  { CUDNN_ATTR_##name, #name, CUDNN_TYPE_FLOAT, Use::kOptional, 1, CUDNN_TYPE_DOUBLE }
#define WINDOW(name)                                                            \
  {                                                                             \
    CUDNN_ATTR_##name, #name, CUDNN_TYPE_INT64, Use::kRequired, kDimensionsMax, \
        CUDNN_TYPE_FRACTION                                                     \
  }
// A descriptor to which this one refers.
#define REQUIRED(name) ROW(name, BACKEND_DESCRIPTOR, kRequired, 1)
#define OPTIONAL(name) ROW(name, BACKEND_DESCRIPTOR, kOptional, 1)
#define DESCRIPTOR(name) CUDNN_BACKEND_##name##_DESCRIPTOR, #name

std::vector<DescriptorRule> ConvolutionRules() {
  return {
      {DESCRIPTOR(TENSOR),
       {
           ROW(TENSOR_BYTE_ALIGNMENT, INT64, kRequired, 1),
           ROW(TENSOR_DATA_TYPE, DATA_TYPE, kRequired, 1),
           ROW(TENSOR_DIMENSIONS, INT64, kRequired, kDimensionsMax),
           ROW(TENSOR_STRIDES, INT64, kRequired, kDimensionsMax),
           ROW(TENSOR_UNIQUE_ID, INT64, kRequired, 1),
           ROW(TENSOR_IS_VIRTUAL, BOOLEAN, kOptional, 1),
           ROW(TENSOR_IS_BY_VALUE, BOOLEAN, kOptional, 1),
           ROW(TENSOR_VECTOR_COUNT, INT64, kOptional, 1),
           ROW(TENSOR_VECTORIZED_DIMENSION, INT64, kOptional, 1),
           ROW(TENSOR_REORDERING_MODE, TENSOR_REORDERING_MODE, kOptional, 1),
       }},
      {DESCRIPTOR(CONVOLUTION),
       {
           ROW(CONVOLUTION_COMP_TYPE, DATA_TYPE, kRequired, 1),
           ROW(CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, kRequired, 1),
           ROW(CONVOLUTION_SPATIAL_DIMS, INT64, kRequired, 1),
           ROW(CONVOLUTION_DILATIONS, INT64, kRequired, kDimensionsMax),
           ROW(CONVOLUTION_FILTER_STRIDES, INT64, kRequired, kDimensionsMax),
           ROW(CONVOLUTION_PRE_PADDINGS, INT64, kRequired, kDimensionsMax),
           ROW(CONVOLUTION_POST_PADDINGS, INT64, kRequired, kDimensionsMax),
       }},
      {DESCRIPTOR(OPERATION_CONVOLUTION_FORWARD),
       {
           REQUIRED(OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
           REQUIRED(OPERATION_CONVOLUTION_FORWARD_X),
           REQUIRED(OPERATION_CONVOLUTION_FORWARD_W),
           REQUIRED(OPERATION_CONVOLUTION_FORWARD_Y),
           NUMBER(OPERATION_CONVOLUTION_FORWARD_ALPHA),
           NUMBER(OPERATION_CONVOLUTION_FORWARD_BETA),
       }},
      {DESCRIPTOR(OPERATION_CONVOLUTION_BACKWARD_DATA),
       {
           REQUIRED(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
           REQUIRED(OPERATION_CONVOLUTION_BWD_DATA_DX),
           REQUIRED(OPERATION_CONVOLUTION_BWD_DATA_W),
           REQUIRED(OPERATION_CONVOLUTION_BWD_DATA_DY),
           NUMBER(OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
           NUMBER(OPERATION_CONVOLUTION_BWD_DATA_BETA),
       }},
      {DESCRIPTOR(OPERATION_CONVOLUTION_BACKWARD_FILTER),
       {
           REQUIRED(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
           REQUIRED(OPERATION_CONVOLUTION_BWD_FILTER_X),
           REQUIRED(OPERATION_CONVOLUTION_BWD_FILTER_DW),
           REQUIRED(OPERATION_CONVOLUTION_BWD_FILTER_DY),
           NUMBER(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA),
           NUMBER(OPERATION_CONVOLUTION_BWD_FILTER_BETA),
       }},
  };
}

std::vector<DescriptorRule> ElementRules() {
  return {
      {DESCRIPTOR(POINTWISE),
       {
           ROW(POINTWISE_MODE, POINTWISE_MODE, kRequired, 1),
           ROW(POINTWISE_MATH_PREC, DATA_TYPE, kRequired, 1),
           NUMBER(POINTWISE_RELU_LOWER_CLIP),
           NUMBER(POINTWISE_RELU_UPPER_CLIP),
           NUMBER(POINTWISE_RELU_LOWER_CLIP_SLOPE),
           NUMBER(POINTWISE_ELU_ALPHA),
           NUMBER(POINTWISE_SOFTPLUS_BETA),
           NUMBER(POINTWISE_SWISH_BETA),
           ROW(POINTWISE_AXIS, INT64, kOptional, 1),
           ROW(POINTWISE_NAN_PROPAGATION, NAN_PROPOGATION, kOptional, 1),
       }},
      {DESCRIPTOR(OPERATION_POINTWISE),
       {
           REQUIRED(OPERATION_POINTWISE_PW_DESCRIPTOR),
           OPTIONAL(OPERATION_POINTWISE_XDESC),
           OPTIONAL(OPERATION_POINTWISE_BDESC),
           OPTIONAL(OPERATION_POINTWISE_TDESC),
           OPTIONAL(OPERATION_POINTWISE_YDESC),
           OPTIONAL(OPERATION_POINTWISE_DXDESC),
           OPTIONAL(OPERATION_POINTWISE_DYDESC),
           NUMBER(OPERATION_POINTWISE_ALPHA1),
           NUMBER(OPERATION_POINTWISE_ALPHA2),
       }},
      {DESCRIPTOR(REDUCTION),
       {
           ROW(REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, kRequired, 1),
           ROW(REDUCTION_COMP_TYPE, DATA_TYPE, kRequired, 1),
           ROW(REDUCTION_IS_DETERMINISTIC, BOOLEAN, kOptional, 1),
       }},
      {DESCRIPTOR(OPERATION_REDUCTION),
       {
           REQUIRED(OPERATION_REDUCTION_XDESC),
           REQUIRED(OPERATION_REDUCTION_YDESC),
           REQUIRED(OPERATION_REDUCTION_DESC),
       }},
      {DESCRIPTOR(OPERATION_GEN_STATS),
       {
           ROW(OPERATION_GENSTATS_MODE, GENSTATS_MODE, kRequired, 1),
           ROW(OPERATION_GENSTATS_MATH_PREC, DATA_TYPE, kRequired, 1),
           REQUIRED(OPERATION_GENSTATS_XDESC),
           REQUIRED(OPERATION_GENSTATS_SUMDESC),
           REQUIRED(OPERATION_GENSTATS_SQSUMDESC),
       }},
      {DESCRIPTOR(OPERATION_RESHAPE),
       {
           REQUIRED(OPERATION_RESHAPE_XDESC),
           REQUIRED(OPERATION_RESHAPE_YDESC),
       }},
  };
}

std::vector<DescriptorRule> NormRules() {
  return {
      {DESCRIPTOR(OPERATION_BN_FINALIZE_STATISTICS),
       {
           ROW(OPERATION_BN_FINALIZE_STATS_MODE, BN_FINALIZE_STATS_MODE, kRequired, 1),
           ROW(OPERATION_BN_FINALIZE_MATH_PREC, DATA_TYPE, kRequired, 1),
           REQUIRED(OPERATION_BN_FINALIZE_SCALE_DESC),
           REQUIRED(OPERATION_BN_FINALIZE_BIAS_DESC),
           REQUIRED(OPERATION_BN_FINALIZE_EPSILON_DESC),
           REQUIRED(OPERATION_BN_FINALIZE_EQ_SCALE_DESC),
           REQUIRED(OPERATION_BN_FINALIZE_EQ_BIAS_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_Y_SUM_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_SAVED_MEAN_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC),
           OPTIONAL(OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC),
       }},
      {DESCRIPTOR(OPERATION_NORM_FORWARD),
       {
           ROW(OPERATION_NORM_FWD_MODE, NORM_MODE, kRequired, 1),
           ROW(OPERATION_NORM_FWD_PHASE, NORM_FWD_PHASE, kRequired, 1),
           REQUIRED(OPERATION_NORM_FWD_XDESC),
           REQUIRED(OPERATION_NORM_FWD_YDESC),
           REQUIRED(OPERATION_NORM_FWD_MEAN_DESC),
           REQUIRED(OPERATION_NORM_FWD_INV_VARIANCE_DESC),
           REQUIRED(OPERATION_NORM_FWD_SCALE_DESC),
           REQUIRED(OPERATION_NORM_FWD_BIAS_DESC),
           OPTIONAL(OPERATION_NORM_FWD_EPSILON_DESC),
           OPTIONAL(OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC),
           OPTIONAL(OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC),
           OPTIONAL(OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC),
           OPTIONAL(OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC),
           OPTIONAL(OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC),
       }},
      {DESCRIPTOR(OPERATION_NORM_BACKWARD),
       {
           ROW(OPERATION_NORM_BWD_MODE, NORM_MODE, kRequired, 1),
           REQUIRED(OPERATION_NORM_BWD_XDESC),
           REQUIRED(OPERATION_NORM_BWD_DYDESC),
           REQUIRED(OPERATION_NORM_BWD_DXDESC),
           REQUIRED(OPERATION_NORM_BWD_MEAN_DESC),
           REQUIRED(OPERATION_NORM_BWD_INV_VARIANCE_DESC),
           REQUIRED(OPERATION_NORM_BWD_SCALE_DESC),
           REQUIRED(OPERATION_NORM_BWD_DSCALE_DESC),
           REQUIRED(OPERATION_NORM_BWD_DBIAS_DESC),
           OPTIONAL(OPERATION_NORM_BWD_EPSILON_DESC),
       }},
      {DESCRIPTOR(OPERATION_BN_BWD_WEIGHTS),
       {
           ROW(OPERATION_BN_BWD_WEIGHTS_MATH_PREC, DATA_TYPE, kRequired, 1),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_MEAN_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_X_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_DY_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC),
           REQUIRED(OPERATION_BN_BWD_WEIGHTS_EQ_BIAS),
       }},
  };
}

std::vector<DescriptorRule> ResampleRules() {
  return {
      {DESCRIPTOR(RESAMPLE),
       {
           ROW(RESAMPLE_MODE, RESAMPLE_MODE, kRequired, 1),
           ROW(RESAMPLE_COMP_TYPE, DATA_TYPE, kRequired, 1),
           ROW(RESAMPLE_SPATIAL_DIMS, INT64, kRequired, 1),
           ROW(RESAMPLE_PADDING_MODE, PADDING_MODE, kOptional, 1),
           ROW(RESAMPLE_NAN_PROPAGATION, NAN_PROPOGATION, kOptional, 1),
           WINDOW(RESAMPLE_PRE_PADDINGS),
           WINDOW(RESAMPLE_POST_PADDINGS),
           WINDOW(RESAMPLE_STRIDES),
           WINDOW(RESAMPLE_WINDOW_DIMS),
       }},
      {DESCRIPTOR(OPERATION_RESAMPLE_FWD),
       {
           REQUIRED(OPERATION_RESAMPLE_FWD_XDESC),
           REQUIRED(OPERATION_RESAMPLE_FWD_YDESC),
           REQUIRED(OPERATION_RESAMPLE_FWD_DESC),
           OPTIONAL(OPERATION_RESAMPLE_FWD_IDXDESC),
           NUMBER(OPERATION_RESAMPLE_FWD_ALPHA),
           NUMBER(OPERATION_RESAMPLE_FWD_BETA),
       }},
      {DESCRIPTOR(OPERATION_RESAMPLE_BWD),
       {
           REQUIRED(OPERATION_RESAMPLE_BWD_DXDESC),
           REQUIRED(OPERATION_RESAMPLE_BWD_DYDESC),
           REQUIRED(OPERATION_RESAMPLE_BWD_DESC),
           OPTIONAL(OPERATION_RESAMPLE_BWD_IDXDESC),
           OPTIONAL(OPERATION_RESAMPLE_BWD_XDESC),
           OPTIONAL(OPERATION_RESAMPLE_BWD_YDESC),
           NUMBER(OPERATION_RESAMPLE_BWD_ALPHA),
           NUMBER(OPERATION_RESAMPLE_BWD_BETA),
       }},
  };
}

std::vector<DescriptorRule> MatmulRules() {
  return {
      {DESCRIPTOR(MATMUL),
       {
           ROW(MATMUL_COMP_TYPE, DATA_TYPE, kRequired, 1),
           NUMBER(MATMUL_PADDING_VALUE),
       }},
      {DESCRIPTOR(OPERATION_MATMUL),
       {
           REQUIRED(OPERATION_MATMUL_ADESC),
           REQUIRED(OPERATION_MATMUL_BDESC),
           REQUIRED(OPERATION_MATMUL_CDESC),
           REQUIRED(OPERATION_MATMUL_DESC),
       }},
      {DESCRIPTOR(OPERATION_SDPA_FWD),
       {
           REQUIRED(OPERATION_SDPA_FWD_QDESC),
           REQUIRED(OPERATION_SDPA_FWD_KDESC),
           REQUIRED(OPERATION_SDPA_FWD_VDESC),
           REQUIRED(OPERATION_SDPA_FWD_ODESC),
           OPTIONAL(OPERATION_SDPA_FWD_STATSDESC),
           OPTIONAL(OPERATION_SDPA_FWD_SCALEDESC),
       }},
      {DESCRIPTOR(OPERATION_SDPA_BWD),
       {
           REQUIRED(OPERATION_SDPA_BWD_QDESC),
           REQUIRED(OPERATION_SDPA_BWD_KDESC),
           REQUIRED(OPERATION_SDPA_BWD_VDESC),
           REQUIRED(OPERATION_SDPA_BWD_ODESC),
           REQUIRED(OPERATION_SDPA_BWD_STATSDESC),
           REQUIRED(OPERATION_SDPA_BWD_DODDESC),
           REQUIRED(OPERATION_SDPA_BWD_DQDESC),
           REQUIRED(OPERATION_SDPA_BWD_DKDESC),
           REQUIRED(OPERATION_SDPA_BWD_DVDESC),
           OPTIONAL(OPERATION_SDPA_BWD_SCALEDESC),
       }},
  };
}

std::vector<DescriptorRule> PlanRules() {
  return {
      {DESCRIPTOR(OPERATIONGRAPH),
       {
           ROW(OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, kRequired, kArrayMax),
           ROW(OPERATIONGRAPH_HANDLE, HANDLE, kOptional, 1),
           ROW(OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, INT64, kComputed, 1),
       }},
      {DESCRIPTOR(ENGINEHEUR),
       {
           REQUIRED(ENGINEHEUR_OPERATION_GRAPH),
           ROW(ENGINEHEUR_MODE, HEUR_MODE, kRequired, 1),
           OPTIONAL(ENGINEHEUR_DEVICEPROP),
           ROW(ENGINEHEUR_SM_COUNT_TARGET, INT32, kOptional, 1),
           ROW(ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, kComputed, kArrayMax),
       }},
      {DESCRIPTOR(ENGINE),
       {
           REQUIRED(ENGINE_OPERATION_GRAPH),
           ROW(ENGINE_GLOBAL_INDEX, INT64, kRequired, 1),
           OPTIONAL(ENGINE_DEVICEPROP),
           ROW(ENGINE_SM_COUNT_TARGET, INT32, kOptional, 1),
           ROW(ENGINE_KNOB_INFO, BACKEND_DESCRIPTOR, kComputed, kArrayMax),
           ROW(ENGINE_LAYOUT_INFO, BACKEND_DESCRIPTOR, kComputed, kArrayMax),
           ROW(ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, kComputed, kArrayMax),
           ROW(ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, kComputed, kArrayMax),
       }},
      {DESCRIPTOR(ENGINECFG),
       {
           REQUIRED(ENGINECFG_ENGINE),
           ROW(ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, kOptional, kArrayMax),
           ROW(ENGINECFG_INTERMEDIATE_INFO, BACKEND_DESCRIPTOR, kComputed, kArrayMax),
           ROW(ENGINECFG_WORKSPACE_SIZE, INT64, kComputed, 1),
           ROW(ENGINECFG_SHARED_MEMORY_USED, INT64, kComputed, 1),
       }},
      {DESCRIPTOR(KNOB_CHOICE),
       {
           ROW(KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, kRequired, 1),
           ROW(KNOB_CHOICE_KNOB_VALUE, INT64, kRequired, 1),
       }},
      {DESCRIPTOR(KNOB_INFO),
       {
           ROW(KNOB_INFO_TYPE, KNOB_TYPE, kComputed, 1),
           ROW(KNOB_INFO_MAXIMUM_VALUE, INT64, kComputed, 1),
           ROW(KNOB_INFO_MINIMUM_VALUE, INT64, kComputed, 1),
           ROW(KNOB_INFO_STRIDE, INT64, kComputed, 1),
       }},
      {DESCRIPTOR(EXECUTION_PLAN),
       {
           ROW(EXECUTION_PLAN_HANDLE, HANDLE, kOptional, 1),
           OPTIONAL(EXECUTION_PLAN_DEVICEPROP),
           OPTIONAL(EXECUTION_PLAN_ENGINE_CONFIG),
           ROW(EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, kOptional, kArrayMax),
           ROW(EXECUTION_PLAN_WORKSPACE_SIZE, INT64, kComputed, 1),
       }},
      {DESCRIPTOR(VARIANT_PACK),
       {
           ROW(VARIANT_PACK_UNIQUE_IDS, INT64, kRequired, kArrayMax),
           ROW(VARIANT_PACK_DATA_POINTERS, VOID_PTR, kRequired, kArrayMax),
           ROW(VARIANT_PACK_WORKSPACE, VOID_PTR, kOptional, 1),
       }},
      {DESCRIPTOR(DEVICEPROP),
       {
           ROW(DEVICEPROP_JSON_REPRESENTATION, CHAR, kOptional, kArrayMax),
           ROW(DEVICEPROP_HANDLE, HANDLE, kOptional, 1),
           ROW(DEVICEPROP_DEVICE_ID, INT32, kOptional, 1),
       }},
  };
}

#undef ROW
#undef NUMBER
#undef WINDOW
#undef REQUIRED
#undef OPTIONAL
#undef DESCRIPTOR

std::vector<DescriptorRule> AllRules() {
  std::vector<DescriptorRule> all;
  for (const auto& part : {ConvolutionRules(), ElementRules(), NormRules(), ResampleRules(),
                           MatmulRules(), PlanRules()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

const AttributeRule* DescriptorRule::Find(cudnnBackendAttributeName_t name) const {
  for (const AttributeRule& rule : attributes) {
    if (rule.name == name) {
      return &rule;
    }
  }
  return nullptr;
}

const DescriptorRule* RuleOf(cudnnBackendDescriptorType_t type) {
  static const auto& rules = *new std::vector<DescriptorRule>(AllRules());
  for (const DescriptorRule& rule : rules) {
    if (rule.type == type) {
      return &rule;
    }
  }
  return nullptr;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
