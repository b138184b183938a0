// Tests that the glyphs are as difficult as intended: easy for the convnet, hard for a linear
// model.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "worker/data/normalization.h"
#include "worker/data/open_dataset.h"
#include "worker/data/sampler.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard {
namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kPixels = int64_t{28} * 28;

// Returns normalised rows of `dataset`.
struct Rows {
  std::vector<float> inputs;
  std::vector<int32_t> labels;

  Rows(const data::Dataset& dataset, const data::Normalization& normalization,
       const std::vector<int64_t>& indices)
      : inputs(indices.size() * kPixels), labels(indices.size()) {
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto pixels = absl::MakeSpan(inputs).subspan(i * kPixels, kPixels);
      EXPECT_TRUE(dataset.Read(indices[i], pixels, absl::MakeSpan(&labels[i], 1)).ok());
    }
    for (float& value : inputs) value = (value - normalization.mean[0]) / normalization.stddev[0];
  }
  engine::Batch batch() const { return {.inputs = inputs, .labels = labels}; }
};

// Returns the test accuracy after one epoch over the whole training split.
double AccuracyAfterOneEpoch(const absl::StatusOr<engine::Graph>& model, double lr) {
  EXPECT_TRUE(model.ok()) << model.status();
  const auto train = data::OpenDataset("glyphs", data::Split::kTrain, {}).value();
  const auto test = data::OpenDataset("glyphs", data::Split::kTest, {}).value();
  const data::Normalization normalization = *data::MeasureNormalization(*train);
  const auto backend = engine::MakeBackend("cpu").value();
  engine::OptimizerSpec optimizer;
  optimizer.momentum = 0.9;
  engine::CompileOptions options;
  options.max_rows = kBatch;
  const auto executable = backend->Compile(*model, optimizer, options).value();
  EXPECT_TRUE(engine::InitializeParameters(1, *executable).ok());
  const data::Sampler sampler(train->size(), 1, 0);
  std::vector<int64_t> indices(kBatch);
  for (int64_t step = 0; step < train->size() / kBatch; ++step) {
    for (int64_t i = 0; i < kBatch; ++i) {
      indices[static_cast<size_t>(i)] = sampler.IndexAt(step * kBatch + i);
    }
    const Rows rows(*train, normalization, indices);
    EXPECT_TRUE(executable->Accumulate(rows.batch(), 1.0, {}).ok());
    EXPECT_TRUE(executable->Update(lr).ok());
  }
  int64_t correct = 0;
  int64_t seen = 0;
  for (; seen + kBatch <= test->size(); seen += kBatch) {
    for (int64_t i = 0; i < kBatch; ++i) indices[static_cast<size_t>(i)] = seen + i;
    const Rows rows(*test, normalization, indices);
    correct += executable->Evaluate(rows.batch()).value().correct;
  }
  return static_cast<double>(correct) / static_cast<double>(seen);
}

TEST(GlyphsAccuracy, ALinearModelStaysFarBelowTheConvnet) {
  const double convnet = AccuracyAfterOneEpoch(
      engine::BuildConvnet(
          {.input = {1, 28, 28}, .channels = {32, 64}, .classes = 10, .batch_norm = false}),
      /*lr=*/0.02);
  const double linear = AccuracyAfterOneEpoch(
      engine::BuildMlp({.input = {1, 28, 28}, .hidden = {}, .classes = 10}), /*lr=*/0.002);
  RecordProperty("convnet", absl::StrCat(convnet));
  EXPECT_GT(convnet, 0.8);
  EXPECT_LT(linear, 0.5);
  EXPECT_GT(linear, 0.2) << "a model that learns nothing would prove nothing";
}

}  // namespace
}  // namespace trainyard
