// Tests which rows the device makes from bytes, and that a training gives the same result.
#include "worker/trainer/run/row_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/data/glyphs.h"
#include "worker/engine/models/models.h"

namespace trainyard::trainer {
namespace {

using data::RowForm;
using ::testing::ElementsAre;

constexpr int64_t kImageBytes = int64_t{30} * 28 * 28;

std::unique_ptr<engine::Executable> Compile(const std::string& backend) {
  return engine::testing::Compile(backend, *engine::BuildMlp({.input = {1, 28, 28}}), {},
                                  {.max_rows = 4});
}

class RowForms : public ::testing::Test {
 protected:
  RowForms() { preparation_.normalization = {{0.5F}, {0.25F}}; }

  RowForm Choose(engine::Executable& executable, int64_t bytes_max = kImageBytes) {
    const absl::Status status = ChooseRowForm(*dataset_, bytes_max, executable, preparation_);
    EXPECT_TRUE(status.ok()) << status;
    return preparation_.form;
  }

  const std::unique_ptr<data::Dataset> dataset_ = data::MakeGlyphs(data::Split::kTrain, 30);
  data::Preparation preparation_;
};

TEST_F(RowForms, TheDeviceKeepsImagesThatFit) {
  const auto executable = Compile(engine::testing::TestedBackend());
  EXPECT_EQ(Choose(*executable), RowForm::kStored);
  EXPECT_EQ(EvaluationForm(*dataset_, preparation_), RowForm::kBytes);
}

TEST_F(RowForms, ImagesThatDoNotFitComeWithTheirBatches) {
  const auto executable = Compile(engine::testing::TestedBackend());
  EXPECT_EQ(Choose(*executable, kImageBytes - 1), RowForm::kBytes);
  EXPECT_EQ(EvaluationForm(*dataset_, preparation_), RowForm::kBytes);
}

TEST_F(RowForms, WhatCannotBeToldIsMadeByTheHost) {
  const auto executable = Compile(engine::testing::TestedBackend());
  preparation_.augmentation = {.pad_crop = 2, .brightness = 0.5};
  EXPECT_EQ(Choose(*executable), RowForm::kFloats);
  EXPECT_EQ(EvaluationForm(*dataset_, preparation_), RowForm::kFloats);
}

TEST_F(RowForms, AHostMakesItsRowsItself) {
  EXPECT_EQ(Choose(*Compile("cpu")), RowForm::kFloats);
}

TEST(ImageBytesMax, IsAQuarterOfTheDeviceWithinWhatIsLeft) {
  EXPECT_EQ(ImageBytesMax(100, 10), 25);
  EXPECT_EQ(ImageBytesMax(100, 80), 20);
  EXPECT_EQ(ImageBytesMax(100, 110), 0);
}

TEST(BatchOfRows, TakesAPartOfEachForm) {
  const data::PreparedBatch floats = {
      .rows = 3, .inputs = {0, 1, 2, 3, 4, 5}, .labels = {7, 8, 9}, .stored = {}, .pixels = {}};
  const engine::Batch of_floats = BatchOfRows(floats, 1, 2);
  EXPECT_THAT(of_floats.inputs, ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(of_floats.labels, ElementsAre(8, 9));
  EXPECT_TRUE(of_floats.stored.empty() && of_floats.stored_pixels.empty());
  const data::PreparedBatch bytes = {.rows = 3,
                                     .inputs = {},
                                     .labels = {7, 8, 9},
                                     .stored = {{.image = 4}, {.image = 5}, {.image = 6}},
                                     .pixels = {0, 1, 2, 3, 4, 5}};
  const engine::Batch of_bytes = BatchOfRows(bytes, 2, 1);
  EXPECT_TRUE(of_bytes.inputs.empty());
  EXPECT_THAT(of_bytes.labels, ElementsAre(9));
  EXPECT_THAT(of_bytes.stored, ElementsAre(StoredRow{.image = 6}));
  EXPECT_THAT(of_bytes.stored_pixels, ElementsAre(4, 5));
}

// Returns the bytes that rank 0 has planned, once it is done.
int64_t PlannedBytes(const GangTrainer& trainer) {
  const auto progress = run_dir::ReadProgress(trainer.dir(), 0);
  EXPECT_TRUE(progress.ok()) << progress.status();
  return progress.ok() ? progress->planned_bytes : 0;
}

TEST(TrainWithStoredRows, EndsAsATrainingOfTheReferenceDoes) {
  JobText job = WithBatchNorm();
  job.data = R"({"dataset": "glyphs", "train_size": 50, "test_size": 17,
    "augment": {"pad_crop": "3", "flip": true, "cutout": 6}})";
  // Left to itself, a GPU would train in bf16.
  ASSERT_TRUE(absl::StrContains(job.train, "{"));
  job.train.replace(job.train.find('{'), 1, R"({"precision": "PRECISION_F32", )");
  GangTrainer expected(job, 1);
  ExpectSuccess(expected.Run());
  GangTrainer trainer(job, 1, engine::testing::TestedBackend());
  ExpectSuccess(trainer.Run());
  ExpectNear(trainer.Metric("train.loss"), expected.Metric("train.loss"));
  ExpectNear(trainer.Metric("test.loss"), expected.Metric("test.loss"));

  // The same step with rows that the host makes differs in the plan only by the store.
  job.data = R"({"dataset": "glyphs", "train_size": 50, "test_size": 17,
    "augment": {"color": {"brightness": 0.4}}})";
  GangTrainer floats(job, 1, engine::testing::TestedBackend());
  ExpectSuccess(floats.Run());
  EXPECT_GE(PlannedBytes(trainer), PlannedBytes(floats) + int64_t{50} * 28 * 28);
  EXPECT_LT(PlannedBytes(trainer), PlannedBytes(floats) + int64_t{50} * 28 * 28 + 256);
}

}  // namespace
}  // namespace trainyard::trainer
