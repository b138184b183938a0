// Tests statistics of batch norm, which the emulated cuDNN finalizes from sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/testing/cudnn_graphs.h"

namespace trainyard::cuda_on_cpu {
namespace {

// One channel with elements 1 2 3 6: sum 12, square sum 50, so mean 3 and variance 3.5.
class FinalizeOnCpu : public testing::Test {
 protected:
  FinalizeOnCpu() {
    const cudnnBackendAttributeName_t names[] = {
        CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC,
        CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC};
    for (size_t i = 0; i < 14; ++i) {
      const auto id = static_cast<int64_t>(i);
      attributes_.push_back(
          Refer(names[i], {cudnn_.Tensor(id, {1, 1, 1, 1}, {.is_by_value = i >= 12})}));
      tensors_[id] = &values_[i];
    }
    attributes_.push_back(
        Refer(CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
              {cudnn_.Tensor(14, {1, 1, 1, 1},
                             {.type = CUDNN_DATA_INT64, .is_by_value = true, .alignment = 8})}));
    tensors_[14] = &count_;
    attributes_.push_back(Choice(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE,
                                 CUDNN_TYPE_BN_FINALIZE_STATS_MODE,
                                 CUDNN_BN_FINALIZE_STATISTICS_TRAINING));
    attributes_.push_back(
        Choice(CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT));
  }
  int64_t Offers(Cudnn::Descriptor graph, cudnnBackendHeurMode_t mode) {
    int64_t count = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(
                  cudnn_.Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                              {Refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph}),
                               Choice(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)}),
                  CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    return count;
  }

  Cudnn cudnn_;
  // Sums, scale, bias, running mean and variance, six results, epsilon, factor.
  float values_[14] = {12, 50, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0.5, 0.25};
  int64_t count_ = 4;
  std::vector<Attribute> attributes_;
  std::map<int64_t, void*> tensors_;
};

TEST_F(FinalizeOnCpu, StatisticsFollowFromSums) {
  cudnn_.Run({cudnn_.Make(CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR, attributes_)},
             tensors_);
  EXPECT_FLOAT_EQ(values_[6], 1.5f);                                // running mean
  EXPECT_FLOAT_EQ(values_[7], 0.75f + 0.25f * 3.5f * 4.0f / 3.0f);  // unbiased
  EXPECT_FLOAT_EQ(values_[8], 3);                                   // mean
  EXPECT_FLOAT_EQ(values_[9], 0.5f);                                // 1 / sqrt(3.5 + 0.5)
  EXPECT_FLOAT_EQ(values_[10], 1);                                  // 2 * 0.5
  EXPECT_FLOAT_EQ(values_[11], -2);                                 // 1 - 3 * 1
}

TEST_F(FinalizeOnCpu, OnlyTheFallbackOffersAnEngine) {
  const auto graph = cudnn_.Graph(
      {cudnn_.Make(CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR, attributes_)});
  EXPECT_EQ(Offers(graph, CUDNN_HEUR_MODE_A), 0);
  EXPECT_EQ(Offers(graph, CUDNN_HEUR_MODE_B), 0);
  EXPECT_EQ(Offers(graph, CUDNN_HEUR_MODE_FALLBACK), 1);
}

TEST_F(FinalizeOnCpu, TrainingNeedsSums) {
  attributes_.erase(attributes_.begin());
  EXPECT_EQ(cudnn_.Try(CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR, attributes_),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(LastError(), testing::HasSubstr("sums"));
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
