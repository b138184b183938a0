// Tests operations of the emulated cuDNN other than convolutions: compares them with numbers
// computed by hand and with plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/testing/cudnn_graphs.h"

namespace trainyard::cuda_on_cpu {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class OperationsOnCpu : public testing::Test {
 protected:
  // Computes mode(x, b, t) of vectors. Operands may be empty.
  std::vector<float> Apply(cudnnPointwiseMode_t mode, std::vector<float> x,
                           std::vector<float> b = {}, std::vector<float> t = {}) {
    const auto tensor = [&](int64_t id, const std::vector<float>& values) {
      return values.empty() ? nullptr : cudnn_.Tensor(id, {1, static_cast<int64_t>(values.size())});
    };
    std::vector<float> y(x.size(), -9);
    std::map<int64_t, void*> tensors = {{1, x.data()}, {4, y.data()}};
    if (!b.empty()) tensors[2] = b.data();
    if (!t.empty()) tensors[3] = t.data();
    cudnn_.Run({cudnn_.Pointwise(mode, tensor(4, y), tensor(1, x), tensor(2, b), tensor(3, t))},
               tensors);
    return y;
  }
  std::vector<float> Reduce(cudnnReduceTensorOp_t mode, std::vector<float> x,
                            const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
    const auto settings = cudnn_.Make(
        CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
        {Choice(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode),
         Choice(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)});
    std::vector<float> y(static_cast<size_t>(to[0] * to[1] * to[2]));
    cudnn_.Run({cudnn_.Operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                                 {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings},
                                  {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, cudnn_.Tensor(1, from)},
                                  {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, cudnn_.Tensor(2, to)}})},
               {{1, x.data()}, {2, y.data()}});
    return y;
  }
  Cudnn::Descriptor Matmul(Cudnn::Descriptor a, Cudnn::Descriptor b, Cudnn::Descriptor c) {
    const auto settings =
        cudnn_.Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                    {Choice(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)});
    return cudnn_.Operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                            {{CUDNN_ATTR_OPERATION_MATMUL_DESC, settings},
                             {CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                             {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                             {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}});
  }

  Cudnn cudnn_;
};

TEST_F(OperationsOnCpu, ArithmeticIsElementByElement) {
  EXPECT_THAT(Apply(CUDNN_POINTWISE_ADD, {1, 2}, {3, 5}), ElementsAre(4, 7));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_SUB, {1, 2}, {3, 5}), ElementsAre(-2, -3));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_MUL, {3, 2}, {3, 5}), ElementsAre(9, 10));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_DIV, {3, 2}, {2, -4}), ElementsAre(1.5, -0.5));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_MAX, {3, 2}, {2, 4}), ElementsAre(3, 4));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_MIN, {3, 2}, {2, 4}), ElementsAre(2, 2));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_RSQRT, {4, 16}), ElementsAre(0.5, 0.25));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_CMP_GE, {1, 2, 3}, {2, 2, 2}), ElementsAre(0, 1, 1));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_CMP_LT, {1, 2, 3}, {2, 2, 2}), ElementsAre(1, 0, 0));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_BINARY_SELECT, {1, 2}, {3, 4}, {0, 1}), ElementsAre(3, 2));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_RELU_FWD, {-1, 0, 2}), ElementsAre(0, 0, 2));
  EXPECT_THAT(Apply(CUDNN_POINTWISE_RELU_BWD, {-1, 0, 2}, {5, 6, 7}), ElementsAre(0, 0, 7));
}

TEST_F(OperationsOnCpu, GradientsOfActivationsAreTheirSlopes) {
  const std::pair<cudnnPointwiseMode_t, cudnnPointwiseMode_t> modes[] = {
      {CUDNN_POINTWISE_TANH_FWD, CUDNN_POINTWISE_TANH_BWD},
      {CUDNN_POINTWISE_SIGMOID_FWD, CUDNN_POINTWISE_SIGMOID_BWD},
      {CUDNN_POINTWISE_ELU_FWD, CUDNN_POINTWISE_ELU_BWD},
      {CUDNN_POINTWISE_GELU_FWD, CUDNN_POINTWISE_GELU_BWD},
      {CUDNN_POINTWISE_SOFTPLUS_FWD, CUDNN_POINTWISE_SOFTPLUS_BWD},
      {CUDNN_POINTWISE_SWISH_FWD, CUDNN_POINTWISE_SWISH_BWD},
      {CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, CUDNN_POINTWISE_GELU_APPROX_TANH_BWD}};
  const float step = 1.0f / 64;
  for (const auto& [forward, backward] : modes) {
    for (const float x : {-1.5f, -0.25f, 0.5f, 2.0f}) {
      const std::vector<float> around = Apply(forward, {x - step, x + step});
      const float slope = (around[1] - around[0]) / (2 * step);
      EXPECT_NEAR(Apply(backward, {x}, {3.0f})[0], 3 * slope, 1e-3) << forward << " at " << x;
    }
  }
  EXPECT_NEAR(Apply(CUDNN_POINTWISE_GELU_FWD, {1})[0], 0.841345, 1e-5);
  EXPECT_NEAR(Apply(CUDNN_POINTWISE_SIGMOID_FWD, {2})[0], 0.880797, 1e-5);
}

TEST_F(OperationsOnCpu, TensorsOfAnyLayoutAndTypeBroadcast) {
  // x [2, 3] is transposed, in bf16. b [1, 3] is added to each row. y is f16.
  const uint16_t x[6] = {0x3f80, 0x4080, 0x4000, 0x40a0, 0x4040, 0x40c0};  // 1 4 2 5 3 6
  float b[3] = {10, 20, 30};
  uint16_t y[6];
  cudnn_.Run(
      {cudnn_.Pointwise(CUDNN_POINTWISE_ADD, cudnn_.Tensor(3, {2, 3}, {.type = CUDNN_DATA_HALF}),
                        cudnn_.Tensor(1, {2, 3}, {.strides = {1, 2}, .type = CUDNN_DATA_BFLOAT16}),
                        cudnn_.Tensor(2, {1, 3}))},
      {{1, const_cast<uint16_t*>(x)}, {2, b}, {3, y}});
  // 11 22 33 14 25 36
  EXPECT_THAT(y, ElementsAre(0x4980, 0x4d80, 0x5020, 0x4b00, 0x4e40, 0x5080));
}

TEST_F(OperationsOnCpu, VirtualTensorsAreRoundedToTheirType) {
  float x[2] = {1.001f, 257};
  float y[2];
  const auto middle =
      cudnn_.Tensor(2, {1, 2}, {.type = CUDNN_DATA_BFLOAT16, .is_virtual = true, .alignment = 2});
  // The operations are given in the wrong order; the right one follows from the tensors.
  cudnn_.Run({cudnn_.Pointwise(CUDNN_POINTWISE_IDENTITY, cudnn_.Tensor(3, {1, 2}), middle),
              cudnn_.Pointwise(CUDNN_POINTWISE_IDENTITY, middle, cudnn_.Tensor(1, {1, 2}))},
             {{1, x}, {3, y}});
  EXPECT_THAT(y, ElementsAre(1, 256));
}

TEST_F(OperationsOnCpu, ReductionsKeepTheDimensionsOfTheResult) {
  const std::vector<float> x = {1, -2, 3, 4, 5, -6, 7, 0};  // [2, 2, 2]
  EXPECT_THAT(Reduce(CUDNN_REDUCE_TENSOR_ADD, x, {2, 2, 2}, {1, 2, 1}), ElementsAre(-2, 14));
  EXPECT_THAT(Reduce(CUDNN_REDUCE_TENSOR_MAX, x, {2, 2, 2}, {2, 2, 1}), ElementsAre(1, 4, 5, 7));
  EXPECT_THAT(Reduce(CUDNN_REDUCE_TENSOR_MIN, x, {2, 2, 2}, {1, 1, 1}), ElementsAre(-6));
  EXPECT_THAT(Reduce(CUDNN_REDUCE_TENSOR_AVG, x, {2, 2, 2}, {2, 1, 1}), ElementsAre(1.5, 1.5));
  EXPECT_THAT(Reduce(CUDNN_REDUCE_TENSOR_AMAX, x, {2, 2, 2}, {1, 1, 2}), ElementsAre(7, 6));
}

TEST_F(OperationsOnCpu, StatisticsAreSumsAndSquareSumsOfChannels) {
  std::vector<float> x = Numbers(size_t{2} * 3 * 4, 1);  // [n 2, c 3, 2, 2]
  float sum[3], squares[3];
  const auto stats = cudnn_.Make(
      CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
      {Choice(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
              CUDNN_GENSTATS_SUM_SQSUM),
       Choice(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
       Refer(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, {cudnn_.Tensor(1, {2, 3, 2, 2})}),
       Refer(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, {cudnn_.Tensor(2, {1, 3, 1, 1})}),
       Refer(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, {cudnn_.Tensor(3, {1, 3, 1, 1})})});
  cudnn_.Run({stats}, {{1, x.data()}, {2, sum}, {3, squares}});
  for (size_t c = 0; c < 3; ++c) {
    float expected = 0, expected_squares = 0;
    for (size_t i = 0; i < 24; ++i) {
      if (i / 4 % 3 == c) {
        expected += x[i];
        expected_squares += x[i] * x[i];
      }
    }
    EXPECT_NEAR(sum[c], expected, 1e-5);
    EXPECT_NEAR(squares[c], expected_squares, 1e-5);
  }
}

// Batch norm of [2, 1, 1, 2] with elements 1 2 3 6: mean 3, variance 3.5.
TEST_F(OperationsOnCpu, BatchNormNormalizesAndItsGradientFollows) {
  float x[4] = {1, 2, 3, 6}, y[4], dx[4], dy[4] = {1, 0, 0, 0};
  float scale = 2, bias = 1, mean, inverse, dscale, dbias, epsilon = 0.5, factor = 0.25;
  float running_mean = 1, running_variance = 1;
  const auto image = [&](int64_t id) { return cudnn_.Tensor(id, {2, 1, 1, 2}); };
  const auto one = [&](int64_t id) { return cudnn_.Tensor(id, {1, 1, 1, 1}); };
  const auto scalar = [&](int64_t id) {
    return cudnn_.Tensor(id, {1, 1, 1, 1}, {.is_by_value = true});
  };
  cudnn_.Run(
      {cudnn_.Make(
          CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
          {Choice(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM),
           Choice(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
                  CUDNN_NORM_FWD_TRAINING),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, {image(1)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, {image(2)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, {one(3)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, {one(4)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, {one(5)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, {one(6)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, {scalar(7)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, {scalar(8)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, {one(9)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, {one(10)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, {one(11)}),
           Refer(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, {one(12)})})},
      {{1, x},
       {2, y},
       {3, &mean},
       {4, &inverse},
       {5, &scale},
       {6, &bias},
       {7, &epsilon},
       {8, &factor},
       {9, &running_mean},
       {10, &running_variance},
       {11, &running_mean},
       {12, &running_variance}});
  EXPECT_FLOAT_EQ(mean, 3);
  EXPECT_FLOAT_EQ(inverse, 0.5);
  EXPECT_THAT(y, ElementsAre(-1, 0, 1, 4));
  EXPECT_FLOAT_EQ(running_mean, 1.5);
  EXPECT_FLOAT_EQ(running_variance, 0.75f + 0.25f * 3.5f * 4 / 3);

  cudnn_.Run({cudnn_.Make(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                          {Choice(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE,
                                  CUDNN_BATCH_NORM),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, {image(1)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, {image(2)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, {image(3)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, {one(4)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, {one(5)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, {one(6)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, {one(7)}),
                           Refer(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, {one(8)})})},
             {{1, x},
              {2, dy},
              {3, dx},
              {4, &mean},
              {5, &inverse},
              {6, &scale},
              {7, &dscale},
              {8, &dbias}});
  // Normalized x is -1 -0.5 0 1.5: dscale = -1, dbias = 1, dx = dy - (dbias + x dscale) / 4.
  EXPECT_FLOAT_EQ(dscale, -1);
  EXPECT_FLOAT_EQ(dbias, 1);
  EXPECT_THAT(dx, ElementsAre(0.5, -0.375, -0.25, 0.125));
}

TEST_F(OperationsOnCpu, PoolingTakesTheLargestAndSendsItsGradientBack) {
  float x[9] = {1, 2, 3, 4, 9, 5, 6, 7, 8}, y[4], dx[9], dy[4] = {1, 2, 3, 4};
  const auto large = [&](int64_t id) { return cudnn_.Tensor(id, {1, 1, 3, 3}); };
  const auto small = [&](int64_t id) { return cudnn_.Tensor(id, {1, 1, 2, 2}); };
  const auto settings = [&](cudnnResampleMode_t mode, cudnnPaddingMode_t padding) {
    return cudnn_.Make(
        CUDNN_BACKEND_RESAMPLE_DESCRIPTOR,
        {Choice(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, mode),
         Choice(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
         Choice(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, padding),
         Int(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 2), Ints(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, {2, 2}),
         Ints(CUDNN_ATTR_RESAMPLE_STRIDES, {1, 1}), Ints(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, {0, 0}),
         Ints(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, {0, 0})});
  };
  const auto largest = settings(CUDNN_RESAMPLE_MAXPOOL, CUDNN_NEG_INF_PAD);
  const auto forward = [&](Cudnn::Descriptor how) {
    return cudnn_.Operation(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                            {{CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, how},
                             {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, large(1)},
                             {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, small(2)}});
  };
  cudnn_.Run({forward(settings(CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, CUDNN_ZERO_PAD))},
             {{1, x}, {2, y}});
  EXPECT_THAT(y, ElementsAre(4, 4.75, 6.5, 7.25));
  cudnn_.Run({forward(largest)}, {{1, x}, {2, y}});
  EXPECT_THAT(y, ElementsAre(9, 9, 9, 9));
  cudnn_.Run({cudnn_.Operation(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR,
                               {{CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, largest},
                                {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, large(3)},
                                {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, small(4)},
                                {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, large(1)},
                                {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, small(2)}})},
             {{1, x}, {2, y}, {3, dx}, {4, dy}});
  EXPECT_THAT(dx, ElementsAre(0, 0, 0, 0, 10, 0, 0, 0, 0));
}

TEST_F(OperationsOnCpu, AReshapeToSwappedStridesTransposesAProduct) {
  float a[6] = {1, 2, 3, 4, 5, 6}, b[4] = {1, 10, 100, 1000}, c[6];
  // Computes a^T b with a [2, 3] and b [2, 2].
  const auto turned = cudnn_.Tensor(4, {1, 3, 2}, {.strides = {6, 1, 3}, .is_virtual = true});
  cudnn_.Run({Matmul(turned, cudnn_.Tensor(2, {1, 2, 2}), cudnn_.Tensor(3, {1, 3, 2})),
              cudnn_.Operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, cudnn_.Tensor(1, {1, 2, 3})},
                                {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, turned}})},
             {{1, a}, {2, b}, {3, c}});
  EXPECT_THAT(c, ElementsAre(401, 4010, 502, 5020, 603, 6030));
}

// Scores are equal, so a causal softmax averages what a query may see.
TEST_F(OperationsOnCpu, ACausalMaskOfIndicesHidesLaterKeys) {
  constexpr int64_t kPositions = 3;
  float scores[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0}, minus = -kInfinity, masked[9];
  const std::vector<int64_t> dims = {1, kPositions, kPositions};
  const auto inner = [&](int64_t id, cudnnDataType_t type) {
    return cudnn_.Tensor(id, dims, {.type = type, .is_virtual = true});
  };
  const auto row = inner(2, CUDNN_DATA_INT32), column = inner(3, CUDNN_DATA_INT32);
  const auto visible = inner(4, CUDNN_DATA_BOOLEAN), x = cudnn_.Tensor(1, dims);
  cudnn_.Run({cudnn_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, row, x, nullptr, nullptr, 1),
              cudnn_.Pointwise(CUDNN_POINTWISE_GEN_INDEX, column, x, nullptr, nullptr, 2),
              cudnn_.Pointwise(CUDNN_POINTWISE_CMP_GE, visible, row, column),
              cudnn_.Pointwise(CUDNN_POINTWISE_BINARY_SELECT, cudnn_.Tensor(6, dims), x,
                               cudnn_.Tensor(5, {1, 1, 1}, {.is_by_value = true}), visible)},
             {{1, scores}, {5, &minus}, {6, masked}});
  EXPECT_THAT(masked, ElementsAre(0, minus, minus, 0, 0, minus, 0, 0, 0));
}

// Compares the gradient with differences of sum(weight * o), one element of q, k and v at a time.
TEST_F(OperationsOnCpu, AttentionAndItsGradientAgree) {
  constexpr size_t kSize = size_t{2} * 3 * 2;  // [1, 2 heads, 3 positions, 2 wide]
  std::vector<float> parts[3] = {Numbers(kSize, 1), Numbers(kSize, 2), Numbers(kSize, 3)};
  std::vector<float> weight = Numbers(kSize, 4), o(kSize), stats(6);
  std::vector<float> gradients[3] = {o, o, o};
  float scale = 0.5;
  const auto value = [&](int64_t id) { return cudnn_.Tensor(id, {1, 2, 3, 2}); };
  const auto logs = cudnn_.Tensor(5, {1, 2, 3, 1});
  const auto factor = cudnn_.Tensor(6, {1, 1, 1, 1}, {.is_by_value = true});
  std::map<int64_t, void*> tensors = {{1, parts[0].data()}, {2, parts[1].data()},
                                      {3, parts[2].data()}, {4, o.data()},
                                      {5, stats.data()},    {6, &scale}};
  const auto forward = cudnn_.Plan(
      cudnn_.Graph({cudnn_.Operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
                                     {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, value(1)},
                                      {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, value(2)},
                                      {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, value(3)},
                                      {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, value(4)},
                                      {CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, logs},
                                      {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, factor}})}));
  const auto objective = [&] {
    EXPECT_EQ(cudnn_.Execute(forward, tensors), CUDNN_STATUS_SUCCESS) << LastError();
    double sum = 0;
    for (size_t i = 0; i < kSize; ++i) {
      sum += static_cast<double>(weight[i]) * static_cast<double>(o[i]);
    }
    return sum;
  };
  objective();
  tensors[7] = weight.data();
  for (int64_t i = 0; i < 3; ++i) tensors[8 + i] = gradients[i].data();
  cudnn_.Run({cudnn_.Operation(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
                               {{CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, value(1)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, value(2)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, value(3)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, value(4)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, logs},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, factor},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, value(7)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, value(8)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, value(9)},
                                {CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, value(10)}})},
             tensors);
  const float step = 1.0f / 64;
  for (size_t part = 0; part < 3; ++part) {
    for (size_t i = 0; i < kSize; ++i) {
      const float before = parts[part][i];
      parts[part][i] = before + step;
      const double above = objective();
      parts[part][i] = before - step;
      const double below = objective();
      parts[part][i] = before;
      EXPECT_NEAR(gradients[part][i], (above - below) / (2 * static_cast<double>(step)), 1e-3)
          << "part " << part << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
