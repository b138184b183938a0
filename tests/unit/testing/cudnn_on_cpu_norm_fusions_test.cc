// Tests which graphs with batch norm around a convolution the emulated cuDNN takes. It refuses
// those for which cuDNN has no engine, though it could compute them.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/testing/cudnn_graphs.h"

namespace trainyard::cuda_on_cpu {
namespace {

// Lists the parts of a graph that may differ from what cuDNN's engines expect.
struct Deviation {
  cudnnDataType_t type = CUDNN_DATA_HALF;            // of images and weights
  cudnnDataType_t coefficients = CUDNN_DATA_HALF;    // scale and shift
  cudnnDataType_t rectified = CUDNN_DATA_HALF;       // what the convolution reads
  cudnnDataType_t gradient = CUDNN_DATA_HALF;        // of the weight
  cudnnPointwiseMode_t first = CUDNN_POINTWISE_MUL;  // the operations before the rectifier
  cudnnPointwiseMode_t second = CUDNN_POINTWISE_ADD;
  bool is_wide = false;         // pixels are twice as far from each other
  bool is_planar = false;       // channels are outermost
  bool has_epilogue = false;    // another rectifier reads y
  bool has_other_mean = false;  // that of the sums is not that of the output
};

class NormFusionsOnCpu : public testing::Test {
 protected:
  Cudnn::Descriptor Image(int64_t id, const Deviation& d, cudnnDataType_t type,
                          bool is_virtual = false) {
    const int64_t pixel = d.is_wide ? 16 : 8;
    const std::vector<int64_t> strides =
        d.is_planar ? std::vector<int64_t>{128, 16, 4, 1}
                    : std::vector<int64_t>{16 * pixel, 1, 4 * pixel, pixel};
    return cudnn_.Tensor(id, {2, 8, 4, 4},
                         {.strides = strides, .type = type, .is_virtual = is_virtual});
  }
  Cudnn::Descriptor Weight(cudnnDataType_t type) {
    return cudnn_.Tensor(2, {8, 8, 1, 1}, {.strides = {8, 1, 8, 8}, .type = type});
  }
  Cudnn::Descriptor Row(int64_t id, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return cudnn_.Tensor(id, {1, 8, 1, 1}, {.strides = {8, 1, 8, 8}, .type = type});
  }
  Attribute Settings(cudnnBackendAttributeName_t name) {
    return Refer(name, {cudnn_.Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                                    {Choice(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                                            CUDNN_DATA_FLOAT),
                                     Choice(CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                                            CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION),
                                     Int(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2),
                                     Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {0, 0}),
                                     Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {0, 0}),
                                     Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {1, 1}),
                                     Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1})})});
  }

  // relu(x scale + shift) in tensor 6.
  std::vector<Cudnn::Descriptor> Normalised(const Deviation& d) {
    const auto scaled = Image(4, d, CUDNN_DATA_FLOAT, true);
    const auto shifted = Image(5, d, CUDNN_DATA_FLOAT, true);
    return {cudnn_.Pointwise(d.first, scaled, Image(1, d, d.type), Row(7, d.coefficients)),
            cudnn_.Pointwise(d.second, shifted, scaled, Row(8, d.coefficients)),
            cudnn_.Pointwise(CUDNN_POINTWISE_RELU_FWD, Image(6, d, d.rectified, true), shifted)};
  }

  cudnnStatus_t TryForward(const Deviation& d) {
    std::vector<Cudnn::Descriptor> operations = Normalised(d);
    const auto y = Image(3, d, d.type);
    operations.push_back(cudnn_.Make(
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, {Image(6, d, d.rectified, true)}),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, {Weight(d.type)}),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, {y})}));
    if (d.has_epilogue) {
      operations.push_back(cudnn_.Pointwise(CUDNN_POINTWISE_RELU_FWD, Image(9, d, d.type), y));
    }
    return cudnn_.TryPlan(cudnn_.Graph(operations), 0);
  }

  cudnnStatus_t TryWeightGradient(const Deviation& d) {
    std::vector<Cudnn::Descriptor> operations = Normalised(d);
    operations.push_back(cudnn_.Make(
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, {Image(6, d, d.rectified, true)}),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, {Weight(d.gradient)}),
         Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, {Image(3, d, d.type)})}));
    return cudnn_.TryPlan(cudnn_.Graph(operations), 0);
  }

  cudnnStatus_t TrySums(const Deviation& d) {
    const auto wide = [&](int64_t id) { return Image(id, d, CUDNN_DATA_FLOAT, true); };
    const auto x = Image(4, d, d.type);
    const auto mean = Row(5), inverse = Row(6), scale = Row(7), bias = Row(8);
    const auto rectified = Image(9, d, d.rectified);
    const auto relu_gradient = cudnn_.Make(
        CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
        {Choice(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_RELU_BWD),
         Choice(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)});
    return cudnn_.TryPlan(
        cudnn_.Graph(
            {cudnn_.Make(
                 CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                 {Settings(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
                  Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, {wide(10)}),
                  Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, {Weight(d.type)}),
                  Refer(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, {Image(3, d, d.type)})}),
             cudnn_.Pointwise(CUDNN_POINTWISE_SUB, wide(11), x, mean),
             cudnn_.Pointwise(d.first, wide(12), wide(11), inverse),
             cudnn_.Pointwise(CUDNN_POINTWISE_MUL, wide(13), wide(12), scale),
             cudnn_.Pointwise(d.second, wide(14), wide(13), bias),
             cudnn_.Operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                              {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, relu_gradient},
                               {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, wide(14)},
                               {CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, wide(10)},
                               {CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, rectified}}),
             cudnn_.Make(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
                         {Choice(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC,
                                 CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
                                {d.has_other_mean ? Row(15) : mean}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, {inverse}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, {scale}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, {x}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, {rectified}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, {Row(16)}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, {Row(17)}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, {Row(18)}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, {Row(19)}),
                          Refer(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, {Row(20)})})}),
        0);
  }

  Cudnn cudnn_;
};

TEST_F(NormFusionsOnCpu, ForwardTakesScaleShiftAndRectifierOfTheTypeOfTheImage) {
  EXPECT_EQ(TryForward({}), CUDNN_STATUS_SUCCESS);
  constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
  EXPECT_EQ(TryForward({.type = kBf16, .coefficients = kBf16, .rectified = kBf16}),
            CUDNN_STATUS_SUCCESS);
  for (const Deviation& deviation :
       {Deviation{.coefficients = CUDNN_DATA_FLOAT}, Deviation{.rectified = CUDNN_DATA_FLOAT},
        Deviation{.type = kBf16}, Deviation{.first = CUDNN_POINTWISE_ADD},
        Deviation{.second = CUDNN_POINTWISE_MUL}, Deviation{.is_wide = true},
        Deviation{.is_planar = true}, Deviation{.has_epilogue = true}}) {
    EXPECT_EQ(TryForward(deviation), CUDNN_STATUS_NOT_SUPPORTED);
  }
}

TEST_F(NormFusionsOnCpu, WeightGradientsAreOfF16Alone) {
  EXPECT_EQ(TryWeightGradient({}), CUDNN_STATUS_SUCCESS);
  constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
  for (const Deviation& deviation :
       {Deviation{.type = kBf16, .coefficients = kBf16, .rectified = kBf16, .gradient = kBf16},
        Deviation{.gradient = CUDNN_DATA_FLOAT}, Deviation{.coefficients = CUDNN_DATA_FLOAT},
        Deviation{.first = CUDNN_POINTWISE_SUB}, Deviation{.is_wide = true},
        Deviation{.is_planar = true}}) {
    EXPECT_EQ(TryWeightGradient(deviation), CUDNN_STATUS_NOT_SUPPORTED);
  }
}

TEST_F(NormFusionsOnCpu, SumsAreTakenOverARectifiedGradientOfAConvolution) {
  EXPECT_EQ(TrySums({}), CUDNN_STATUS_SUCCESS);
  constexpr auto kBf16 = CUDNN_DATA_BFLOAT16;
  for (const Deviation& deviation :
       {Deviation{.type = kBf16, .rectified = kBf16}, Deviation{.rectified = CUDNN_DATA_FLOAT},
        Deviation{.first = CUDNN_POINTWISE_DIV}, Deviation{.second = CUDNN_POINTWISE_SUB},
        Deviation{.is_wide = true}, Deviation{.is_planar = true},
        Deviation{.has_other_mean = true}}) {
    EXPECT_EQ(TrySums(deviation), CUDNN_STATUS_NOT_SUPPORTED);
  }
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
