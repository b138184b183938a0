// Tests descriptors, heuristics, plans and executions of the emulated cuDNN, and their failures.
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/testing/cudnn_graphs.h"

namespace trainyard::cuda_on_cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMebibyte = 1 << 20;

// Builds y = x + b over 64 elements, with the ids 1, 2 and 3.
class CudnnOnCpu : public testing::Test {
 protected:
  Cudnn::Descriptor SumGraph(const TensorOptions& options = {}) {
    return cudnn_.Graph({cudnn_.Pointwise(CUDNN_POINTWISE_ADD, cudnn_.Tensor(3, {1, 8, 8}, options),
                                          cudnn_.Tensor(1, {1, 8, 8}, options),
                                          cudnn_.Tensor(2, {1, 8, 8}, options))});
  }
  Cudnn::Descriptor ConvolutionGraph() {
    const auto image = [&](int64_t id) { return cudnn_.Tensor(id, {1, 2, 4, 4}); };
    const auto settings = cudnn_.Make(
        CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        {Choice(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
         Choice(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                CUDNN_CROSS_CORRELATION),
         Int(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2),
         Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {1, 1}),
         Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {1, 1}),
         Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {1, 1}),
         Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1})});
    return cudnn_.Graph({cudnn_.Operation(
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, settings},
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, image(1)},
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, cudnn_.Tensor(2, {2, 2, 3, 3})},
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, image(3)}})});
  }
  // The indices of the engines that a mode offers.
  std::vector<int64_t> Offered(Cudnn::Descriptor graph, cudnnBackendHeurMode_t mode) {
    const auto heuristics =
        cudnn_.Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
                    {Refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph}),
                     Choice(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode)});
    int64_t count = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    std::vector<Cudnn::Descriptor> configs;
    for (int64_t i = 0; i < count; ++i) {
      configs.push_back(cudnn_.Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    }
    EXPECT_EQ(
        cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, configs.data()),
        CUDNN_STATUS_SUCCESS);
    std::vector<int64_t> indices;
    for (const auto config : configs) {
      Cudnn::Descriptor engine = cudnn_.Create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      int64_t index = -1;
      EXPECT_EQ(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine),
                CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                         1, &count, &index),
                CUDNN_STATUS_SUCCESS);
      indices.push_back(index);
    }
    return indices;
  }
  int64_t WorkspaceOf(Cudnn::Descriptor plan) {
    int64_t bytes = -1;
    EXPECT_EQ(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, nullptr, &bytes),
              CUDNN_STATUS_SUCCESS);
    return bytes;
  }
  std::string TextOf(Cudnn::Descriptor plan) {
    int64_t size = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, 0, &size, nullptr),
              CUDNN_STATUS_SUCCESS);
    std::string text(static_cast<size_t>(size), '\0');
    EXPECT_EQ(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, size, &size, text.data()),
              CUDNN_STATUS_SUCCESS);
    return text;
  }

  Cudnn cudnn_;
  std::vector<float> x_ = Numbers(64, 1), b_ = Numbers(64, 2), y_ = std::vector<float>(64, -9.0f);
  std::map<int64_t, void*> tensors_ = {{1, x_.data()}, {2, b_.data()}, {3, y_.data()}};
};

TEST_F(CudnnOnCpu, AnAttributeOfTheWrongTypeOrCountIsRefusedWithItsName) {
  const auto tensor = cudnn_.Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t values[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(
      cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, values),
      CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_THAT(LastError(), HasSubstr("TENSOR_UNIQUE_ID"));
  EXPECT_EQ(LastError(), "");  // reading it clears it
  EXPECT_EQ(
      cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, values),
      CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(
      cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, values),
      CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
                                     1, values),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendSetAttribute(&x_, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, values),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(CudnnOnCpu, ADescriptorIsCompleteWhenFinalizedAndFrozenFromThenOn) {
  EXPECT_EQ(cudnn_.Try(CUDNN_BACKEND_TENSOR_DESCRIPTOR, {Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1)}),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(LastError(), HasSubstr("lacks attribute TENSOR_"));
  const auto tensor = cudnn_.Tensor(1, {2, 2});
  const int64_t id = 2;
  EXPECT_EQ(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnBackendFinalize(tensor), CUDNN_STATUS_BAD_PARAM);
  Cudnn::Descriptor raw = cudnn_.Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto pointwise = cudnn_.Create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  EXPECT_EQ(cudnnBackendSetAttribute(pointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
}

TEST_F(CudnnOnCpu, ATensorsLayoutIsChecked) {
  const auto attempt = [&](int64_t strides, int64_t alignment, int64_t dim) {
    return cudnn_.Try(
        CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        {Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1),
         Choice(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT),
         Ints(CUDNN_ATTR_TENSOR_DIMENSIONS, {dim, 4}),
         Ints(CUDNN_ATTR_TENSOR_STRIDES, std::vector<int64_t>(static_cast<size_t>(strides), 1)),
         Int(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)});
  };
  EXPECT_EQ(attempt(2, 4, 3), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(attempt(3, 4, 3), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt(2, 2, 3), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt(2, 4, 0), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnOnCpu, AGraphNeedsOneMeaningAndOneOriginOfEachTensor) {
  const auto x = cudnn_.Tensor(1, {1, 8}), y = cudnn_.Tensor(2, {1, 8});
  const auto wide = cudnn_.Tensor(1, {1, 1}),
             hidden = cudnn_.Tensor(3, {1, 8}, {.is_virtual = true});
  const auto attempt = [&](const std::vector<Cudnn::Descriptor>& operations) {
    return cudnn_.Try(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                      {Refer(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations)});
  };
  const auto copy = [&](Cudnn::Descriptor from, Cudnn::Descriptor to) {
    return cudnn_.Pointwise(CUDNN_POINTWISE_IDENTITY, to, from);
  };
  EXPECT_EQ(attempt({copy(x, y)}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(attempt({copy(x, y), copy(wide, hidden)}), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  EXPECT_EQ(attempt({copy(x, y), copy(x, y)}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt({copy(hidden, y)}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt({copy(x, y), copy(y, x)}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt({x}), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
}

TEST_F(CudnnOnCpu, HeuristicsOfferEnginesThatPlannersMustLeaveOut) {
  const auto graph = SumGraph();
  EXPECT_THAT(Offered(graph, CUDNN_HEUR_MODE_A), ElementsAre(4, 2, 3, 1, 0));
  EXPECT_THAT(Offered(graph, CUDNN_HEUR_MODE_B), ElementsAre(3, 1));
  EXPECT_THAT(Offered(graph, CUDNN_HEUR_MODE_FALLBACK), ElementsAre(0));
  EXPECT_EQ(cudnn_.TryPlan(graph, 4), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(WorkspaceOf(cudnn_.Plan(graph, 0)), 0);
  EXPECT_EQ(WorkspaceOf(cudnn_.Plan(graph, 1)), kMebibyte);
  EXPECT_EQ(WorkspaceOf(cudnn_.Plan(graph, 2)), 300 * kMebibyte);
  EXPECT_EQ(cudnn_.Try(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                       {Refer(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph}),
                        Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 5)}),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnOnCpu, OnlyTheNondeterministicEngineSaysSoAndChangesItsResults) {
  const auto graph = SumGraph();
  for (int64_t index = 0; index < 5; ++index) {
    const auto engine = cudnn_.Make(CUDNN_BACKEND_ENGINE_DESCRIPTOR,
                                    {Refer(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph}),
                                     Int(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index)});
    std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    int64_t count = 0;
    ASSERT_EQ(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                       CUDNN_TYPE_NUMERICAL_NOTE, 10, &count, notes.data()),
              CUDNN_STATUS_SUCCESS);
    notes.resize(static_cast<size_t>(count));
    EXPECT_EQ(testing::Value(notes, testing::Contains(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)),
              index == 3);
  }
  for (const int64_t index : {0, 3}) {
    const auto plan = cudnn_.Plan(graph, index);
    ASSERT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_SUCCESS);
    const std::vector<float> first = y_;
    ASSERT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(first == y_, index == 0);
    for (size_t i = 0; i < y_.size(); ++i) {
      EXPECT_NEAR(y_[i], x_[i] + b_[i], 3e-7);
    }
  }
}

TEST_F(CudnnOnCpu, TheWorkspaceIsOverwritten) {
  const auto plan = cudnn_.Plan(SumGraph(), 1);
  EXPECT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_THAT(LastError(), HasSubstr("workspace"));
  std::vector<float> workspace(kMebibyte / 4, 1.0f);
  EXPECT_EQ(cudnn_.Execute(plan, tensors_, workspace.data()), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y_[7], x_[7] + b_[7]);
  EXPECT_TRUE(std::isnan(workspace.front()));
  EXPECT_TRUE(std::isnan(workspace.back()));
  // A result that lies in the workspace is lost.
  tensors_[3] = workspace.data() + 64;
  EXPECT_EQ(cudnn_.Execute(plan, tensors_, workspace.data()), CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(std::isnan(workspace[64]));
}

TEST_F(CudnnOnCpu, PointersAreCheckedAtTheCall) {
  const auto plan = cudnn_.Plan(SumGraph({.alignment = 16}));
  alignas(16) float memory[3][72];
  tensors_ = {{1, memory[0]}, {2, memory[1]}, {3, memory[2]}};
  EXPECT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_SUCCESS);
  tensors_[2] = memory[1] + 1;
  EXPECT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  tensors_[2] = nullptr;
  EXPECT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  tensors_.erase(2);
  EXPECT_EQ(cudnn_.Execute(plan, tensors_), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(LastError(), HasSubstr("tensor 2"));
  EXPECT_EQ(cudnn_.Execute(nullptr, tensors_), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(CudnnOnCpu, WorkRunsWithTheStreamAndScalarsAreReadAtTheCall) {
  const auto graph = cudnn_.Graph(
      {cudnn_.Pointwise(CUDNN_POINTWISE_MUL, cudnn_.Tensor(3, {1, 64}), cudnn_.Tensor(1, {1, 64}),
                        cudnn_.Tensor(2, {1, 1}, {.is_by_value = true}))});
  float factor = 3;
  const auto pack = cudnn_.Make(
      CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
      {Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {1, 2, 3}),
       Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {x_.data(), &factor, y_.data()})});
  const int64_t before = PlansRun();
  ASSERT_EQ(cudnnBackendExecute(cudnn_.handle(), cudnn_.Plan(graph), pack), CUDNN_STATUS_SUCCESS);
  factor = 100;
  EXPECT_EQ(PlansRun(), before);
  EXPECT_EQ(y_[5], -9.0f);
  ASSERT_EQ(cudaStreamSynchronize(cudnn_.stream()), cudaSuccess);
  EXPECT_EQ(PlansRun(), before + 1);
  EXPECT_EQ(y_[5], 3 * x_[5]);
}

TEST_F(CudnnOnCpu, APlanOutlivesItsTextAndItsDescriptors) {
  const std::string text = TextOf(cudnn_.Plan(SumGraph(), 1));
  const std::string device_text = R"({"deviceVer":900})";
  const auto device = cudnn_.Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                                  {Text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, device_text)});
  const auto attempt = [&](const std::string& plan_text, Cudnn::Descriptor* made = nullptr) {
    return cudnn_.Try(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                      {Refer(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, {device}),
                       Text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, plan_text)},
                      made);
  };
  Cudnn::Descriptor plan = nullptr;
  ASSERT_EQ(attempt(text, &plan), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_EQ(TextOf(plan), text);
  EXPECT_EQ(WorkspaceOf(plan), kMebibyte);
  std::vector<float> workspace(kMebibyte / 4);
  ASSERT_EQ(cudnn_.Execute(plan, tensors_, workspace.data()), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y_[9], x_[9] + b_[9]);

  EXPECT_EQ(attempt("{}"), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(attempt(text.substr(0, text.size() / 2)), CUDNN_STATUS_BAD_PARAM);
  std::string other = text;
  other.replace(other.find(std::to_string(CUDNN_VERSION)), 5, "80000");
  EXPECT_EQ(attempt(other), CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
  EXPECT_EQ(cudnn_.Try(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                       {Text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, "{nothing")}),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(CudnnOnCpu, TestsCanMakeGraphsUnsupported) {
  const auto graph = ConvolutionGraph();
  EXPECT_THAT(Offered(graph, CUDNN_HEUR_MODE_FALLBACK), ElementsAre(0));
  RefuseConvolutions([](const ConvolutionShape& shape) {
    return shape.kernel_height == 3 && shape.channels == 2 && shape.operations == 1;
  });
  EXPECT_THAT(Offered(graph, CUDNN_HEUR_MODE_FALLBACK), ElementsAre());
  EXPECT_EQ(cudnn_.TryPlan(graph, 0), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnn_.TryPlan(SumGraph(), 0), CUDNN_STATUS_SUCCESS);
  RefuseConvolutions(nullptr);
  EXPECT_EQ(cudnn_.TryPlan(graph, 0), CUDNN_STATUS_SUCCESS);
}

TEST_F(CudnnOnCpu, APlanRunsOnlyByItsHandle) {
  Cudnn other;
  const auto plan = cudnn_.Plan(SumGraph(), 0);
  const auto pack = cudnn_.Make(
      CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
      {Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {1, 2, 3}),
       Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {x_.data(), b_.data(), y_.data()})});
  EXPECT_EQ(cudnnBackendExecute(other.handle(), plan, pack), CUDNN_STATUS_BAD_PARAM);
  EXPECT_THAT(LastError(), HasSubstr("made for another handle"));
  EXPECT_EQ(cudnnBackendExecute(cudnn_.handle(), plan, pack), CUDNN_STATUS_SUCCESS) << LastError();
  ASSERT_EQ(cudaStreamSynchronize(cudnn_.stream()), cudaSuccess);
}

TEST_F(CudnnOnCpu, TestsCanRefuseTheTextsOfPlans) {
  int64_t size = 0;
  const auto read = [&](Cudnn::Descriptor plan) {
    return cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, 0, &size, nullptr);
  };
  RefusePlanTexts(true);
  const auto plan = cudnn_.Plan(SumGraph(), 0);
  RefusePlanTexts(false);
  EXPECT_EQ(read(plan), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(read(cudnn_.Plan(SumGraph(), 0)), CUDNN_STATUS_SUCCESS);
  EXPECT_GT(size, 0);
}

TEST(CudnnObjects, HandlesTakeMemoryIfATestWantsIt) {
  const int64_t handles = LiveCudnnHandles();
  const int64_t bytes = LiveBytes();
  SetHandleBytes(1000);
  {
    const Cudnn cudnn;
    EXPECT_EQ(LiveCudnnHandles(), handles + 1);
    EXPECT_EQ(LiveBytes(), bytes + 1000);
    SetHandleBytes(int64_t{1} << 50);
    cudnnHandle_t handle = nullptr;
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    (void)cudaGetLastError();
  }
  SetHandleBytes(0);
  EXPECT_EQ(LiveCudnnHandles(), handles);
  EXPECT_EQ(LiveBytes(), bytes);
}

TEST(CudnnObjects, AreCountedUntilDestroyed) {
  const int64_t before = LiveCudnnObjects();
  {
    Cudnn cudnn;
    cudnn.Tensor(1, {2, 2});
    EXPECT_EQ(LiveCudnnObjects(), before + 2);
  }
  EXPECT_EQ(LiveCudnnObjects(), before);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(nullptr), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroy(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
