// Tests that the device makes the same rows of 8-bit images as the host, to the bit.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/testing/device_array.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/data/memory_dataset.h"
#include "worker/data/prefetch.h"
#include "worker/data/random.h"
#include "worker/engine/backend/cuda/kernels/input.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine::cuda {
namespace {

using testing::Compile;
using testing::Values;
using trainyard::testing::DeviceArray;

constexpr int64_t kNoLimit = int64_t{1} << 40;

data::MemoryDataset RandomImages(const Shape& shape, int64_t count) {
  data::RandomStream random(7);
  data::MemoryDataset::Content content;
  content.sample_shape = shape;
  content.classes = 5;
  content.pixels.resize(static_cast<size_t>(count * ElementCount(shape)));
  for (uint8_t& byte : content.pixels) byte = static_cast<uint8_t>(random.Below(256));
  for (int64_t i = 0; i < count; ++i) content.labels.push_back(static_cast<uint8_t>(i % 5));
  return data::MemoryDataset(std::move(content));
}

data::Preparation AllThatCanBeTold(int64_t channels) {
  data::Preparation preparation;
  for (int64_t c = 0; c < channels; ++c) {
    preparation.normalization.mean.push_back(0.3F + 0.07F * static_cast<float>(c));
    preparation.normalization.stddev.push_back(0.21F + 0.03F * static_cast<float>(c));
  }
  preparation.augmentation = {.pad_crop = 4, .flip = true, .cutout = 9};
  preparation.seed = 11;
  return preparation;
}

ImageStore StoreOf(const data::Dataset& dataset, const data::Preparation& preparation) {
  return {.pixels = dataset.bytes().pixels,
          .mean = preparation.normalization.mean,
          .stddev = preparation.normalization.stddev};
}

// The rows of one batch in a form, as the prefetcher makes them.
data::PreparedBatch Prepare(const data::Dataset& dataset, data::Preparation preparation,
                            data::RowForm form, const std::vector<int64_t>& indices,
                            int64_t epoch) {
  preparation.form = form;
  data::Prefetcher prefetcher(
      dataset, preparation,
      [&](int64_t sequence) {
        return sequence == 0 ? data::PlannedBatch(indices, epoch) : data::PlannedBatch({});
      },
      1);
  const data::PreparedBatch* batch = prefetcher.Next();
  return batch == nullptr ? data::PreparedBatch() : *batch;
}

Batch BatchOf(const data::PreparedBatch& prepared) {
  return {.inputs = prepared.inputs,
          .labels = prepared.labels,
          .stored = prepared.stored,
          .stored_pixels = prepared.pixels};
}

// Returns what the first layer reads, [rows, C, H, W].
std::vector<float> ReadOnDevice(const StepControl& told, const ImageShape& shape) {
  const DeviceArray<StepControl> control(std::vector<StepControl>{told});
  const int64_t stride = PaddedChannels(shape.channels, Type::kF32);
  const DeviceArray<float> images(static_cast<size_t>(shape.pixels() * stride));
  ReadImages(control.data(), {images.data(), stride, Type::kF32}, shape, nullptr);
  const DeviceArray<float> planes(static_cast<size_t>(shape.pixels() * shape.channels));
  WriteImages({images.data(), stride, Type::kF32}, planes.data(), shape, nullptr);
  return planes.Read();
}

TEST(StoredImages, TheFirstLayerReadsTheBitsThatTheHostWouldHaveSent) {
  constexpr int64_t kImages = 40;
  for (const Shape& shape : {Shape{1, 28, 28}, Shape{3, 32, 32}}) {
    const data::MemoryDataset dataset = RandomImages(shape, kImages);
    const data::Preparation preparation = AllThatCanBeTold(shape[0]);
    const DeviceArray<uint8_t> pixels(
        std::vector<uint8_t>(dataset.bytes().pixels.begin(), dataset.bytes().pixels.end()));
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < kImages; ++i) indices.push_back(i * 7 % kImages);
    const ImageShape images = {kImages, shape[0], shape[1], shape[2]};
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const auto in = [&](data::RowForm form) {
        return Prepare(dataset, preparation, form, indices, epoch);
      };
      const std::vector<float> expected = in(data::RowForm::kFloats).inputs;
      StepControl control;
      std::copy_n(preparation.normalization.mean.begin(), shape[0], control.stored.mean);
      std::copy_n(preparation.normalization.stddev.begin(), shape[0], control.stored.stddev);

      const DeviceArray<StoredRow> rows(in(data::RowForm::kStored).stored);
      control.inputs = rows.data();
      control.stored.pixels = pixels.data();
      // Zeros of both signs are equal.
      EXPECT_EQ(ReadOnDevice(control, images), expected);

      const data::PreparedBatch own = in(data::RowForm::kBytes);
      const DeviceArray<StoredRow> own_rows(own.stored);
      const DeviceArray<uint8_t> own_pixels(own.pixels);
      control.inputs = own_rows.data();
      control.stored.pixels = own_pixels.data();
      control.stored.is_by_row = 1;
      EXPECT_EQ(ReadOnDevice(control, images), expected);
    }
  }
}

constexpr int64_t kRows = 4;

Graph Model() {
  return *BuildConvnet({.input = {3, 8, 8}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
}

// The losses of steps over the same samples, and the state after them.
struct Course {
  std::vector<double> losses;
  testing::NamedValues state;
};

enum class By { kAccumulate, kWholeSteps };

Course Train(const std::vector<data::RowForm>& forms, const CompileOptions& options, By by) {
  const data::MemoryDataset dataset = RandomImages({3, 8, 8}, 20);
  data::Preparation preparation = AllThatCanBeTold(3);
  preparation.augmentation = {.pad_crop = 2, .flip = true, .cutout = 3};
  const auto executable = Compile(testing::TestedBackend(), Model(), {.momentum = 0.9}, options);
  EXPECT_TRUE(InitializeParameters(3, *executable).ok());
  EXPECT_TRUE(
      executable->image_memory()->StoreImages(StoreOf(dataset, preparation), kNoLimit).ok());
  Course course;
  for (int64_t step = 0; step < 5; ++step) {
    const data::RowForm form = forms[static_cast<size_t>(step) % forms.size()];
    const std::vector<int64_t> indices = {step, 19 - step, 2 * step, 7};
    const data::PreparedBatch prepared = Prepare(dataset, preparation, form, indices, step / 4);
    const Batch batch = BatchOf(prepared);
    if (by == By::kWholeSteps) {
      EXPECT_TRUE(executable->StartStep(batch, 0.1).ok());
    } else {
      EXPECT_TRUE(executable->Accumulate(batch, 0.5, nullptr).ok());
      EXPECT_TRUE(executable->Accumulate(batch, 0.5, nullptr).ok());
      EXPECT_TRUE(executable->StartUpdate(0.1).ok());
    }
    const auto metrics = executable->FinishUpdate();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    course.losses.push_back(metrics->loss);
  }
  course.state = testing::ReadAllState(*executable);
  return course;
}

TEST(StoredImages, ATrainingIsTheSameInEveryFormAsGraphsAndCallByCall) {
  using data::RowForm;
  for (const By by : {By::kAccumulate, By::kWholeSteps}) {
    const Course floats = Train({RowForm::kFloats}, {.max_rows = kRows}, by);
    EXPECT_NE(floats.losses.front(), floats.losses.back());
    // One captured graph serves all forms, also in turns.
    for (const std::vector<RowForm>& forms :
         std::vector<std::vector<RowForm>>{{RowForm::kStored},
                                           {RowForm::kBytes},
                                           {RowForm::kStored, RowForm::kFloats, RowForm::kBytes}}) {
      for (const bool captures : {true, false}) {
        const Course course = Train(forms, {.max_rows = kRows, .captures = captures}, by);
        EXPECT_EQ(course.losses, floats.losses);
        EXPECT_EQ(course.state, floats.state);
      }
    }
  }
}

TEST(StoredImages, GuardedBuffersHoldAndTheInputGradientIsTheSame) {
  const data::MemoryDataset dataset = RandomImages({3, 8, 8}, 20);
  const data::Preparation preparation = AllThatCanBeTold(3);
  const auto executable =
      Compile(testing::TestedBackend(), Model(), {}, {.max_rows = kRows, .inspect = true});
  testing::RandomizeState(1, *executable);
  ASSERT_TRUE(
      executable->image_memory()->StoreImages(StoreOf(dataset, preparation), kNoLimit).ok());
  std::vector<Inspection> seen;
  for (const data::RowForm form :
       {data::RowForm::kFloats, data::RowForm::kStored, data::RowForm::kBytes}) {
    const data::PreparedBatch prepared = Prepare(dataset, preparation, form, {1, 17, 4, 1}, 2);
    ASSERT_TRUE(executable->Accumulate(BatchOf(prepared), 1, nullptr).ok());
    const auto inspection = executable->Inspect();
    ASSERT_TRUE(inspection.ok()) << inspection.status();
    EXPECT_EQ(inspection->logits, seen.empty() ? inspection->logits : seen[0].logits);
    EXPECT_EQ(inspection->input_gradient,
              seen.empty() ? inspection->input_gradient : seen[0].input_gradient);
    seen.push_back(*inspection);
  }
}

TEST(StoredImages, AnEvaluationReadsThemToo) {
  const data::MemoryDataset dataset = RandomImages({3, 8, 8}, 20);
  data::Preparation preparation = AllThatCanBeTold(3);
  preparation.augmentation = {};
  const auto executable = Compile(testing::TestedBackend(), Model(), {}, {.max_rows = kRows});
  testing::RandomizeState(1, *executable);
  // The cases are a small last batch, and images of another split than the stored one.
  ASSERT_TRUE(
      executable->image_memory()
          ->StoreImages({{}, preparation.normalization.mean, preparation.normalization.stddev},
                        kNoLimit)
          .ok());
  for (const std::vector<int64_t>& indices :
       {std::vector<int64_t>{3, 4, 5, 6}, {9}, {1, 2, 3, 4}}) {
    const auto floats = Prepare(dataset, preparation, data::RowForm::kFloats, indices, 0);
    const auto bytes = Prepare(dataset, preparation, data::RowForm::kBytes, indices, 0);
    const auto expected = executable->Evaluate(BatchOf(floats));
    const auto seen = executable->Evaluate(BatchOf(bytes));
    ASSERT_TRUE(expected.ok() && seen.ok()) << seen.status();
    EXPECT_EQ(seen->loss_sum, expected->loss_sum);
    EXPECT_EQ(seen->correct, expected->correct);
    EXPECT_EQ(seen->rows, static_cast<int64_t>(indices.size()));
  }
}

class StoredBatches : public ::testing::Test {
 protected:
  StoredBatches() : executable_(Compile(testing::TestedBackend(), Model(), {}, {.max_rows = 2})) {}

  absl::Status Store() {
    return executable_->image_memory()->StoreImages(StoreOf(dataset_, preparation_), kNoLimit);
  }
  absl::Status Accumulate(const std::vector<StoredRow>& rows,
                          const std::vector<uint8_t>& pixels = {}, const Values& inputs = {}) {
    const std::vector<int32_t> labels(2, 1);
    return executable_->Accumulate(
        {.inputs = inputs, .labels = labels, .stored = rows, .stored_pixels = pixels}, 1, nullptr);
  }

  const data::MemoryDataset dataset_ = RandomImages({3, 8, 8}, 6);
  const data::Preparation preparation_ = AllThatCanBeTold(3);
  const std::unique_ptr<Executable> executable_;
};

TEST_F(StoredBatches, MayNameNoImageThatIsNotStored) {
  ASSERT_TRUE(Store().ok());
  EXPECT_TRUE(Accumulate({{.image = 0}, {.image = 5}}).ok());
  const absl::Status beyond = Accumulate({{.image = 0}, {.image = 6}});
  EXPECT_TRUE(absl::IsInvalidArgument(beyond)) << beyond;
  EXPECT_EQ(beyond.message(), "image 6 of row 1; expected [0, 6)");
  EXPECT_TRUE(absl::IsInvalidArgument(Accumulate({{.image = -1}, {.image = 0}})));
}

TEST_F(StoredBatches, HaveOneRowALabelAndNoFloats) {
  ASSERT_TRUE(Store().ok());
  const std::vector<StoredRow> rows(2);
  EXPECT_TRUE(absl::IsInvalidArgument(Accumulate(std::vector<StoredRow>(1))));
  EXPECT_TRUE(absl::IsInvalidArgument(Accumulate(rows, {}, Values(size_t{2} * 192))));
  EXPECT_TRUE(absl::IsInvalidArgument(Accumulate(rows, std::vector<uint8_t>(191))));
  EXPECT_TRUE(absl::IsInvalidArgument(Accumulate({}, std::vector<uint8_t>(size_t{2} * 192))));
  EXPECT_TRUE(Accumulate(rows, std::vector<uint8_t>(size_t{2} * 192)).ok());
}

TEST_F(StoredBatches, WantAStore) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Accumulate(std::vector<StoredRow>(2))));
  ASSERT_TRUE(Store().ok());
  EXPECT_TRUE(Accumulate(std::vector<StoredRow>(2)).ok());
  // A failure to store leaves nothing behind.
  EXPECT_FALSE(executable_->image_memory()->StoreImages(StoreOf(dataset_, preparation_), 1).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Accumulate(std::vector<StoredRow>(2))));
}

TEST_F(StoredBatches, TheStoreIsCountedAndKeepsToItsLimit) {
  const int64_t before = executable_->memory_plan().buffers();
  const int64_t live = LiveBufferBytes();
  const ImageStore images = StoreOf(dataset_, preparation_);
  const auto bytes = static_cast<int64_t>(images.pixels.size());
  EXPECT_TRUE(
      absl::IsResourceExhausted(executable_->image_memory()->StoreImages(images, bytes - 1)));
  EXPECT_EQ(executable_->memory_plan().buffers(), before);
  ASSERT_TRUE(executable_->image_memory()->StoreImages(images, bytes).ok());
  EXPECT_GE(executable_->memory_plan().buffers(), before + bytes);
  EXPECT_EQ(executable_->memory_plan().buffers() - before, LiveBufferBytes() - live);
}

TEST_F(StoredBatches, TheStoreHoldsImagesOfTheModel) {
  const ImageStore images = StoreOf(dataset_, preparation_);
  const std::vector<float> two(2, 1);
  const auto store = [&](const ImageStore& given) {
    return executable_->image_memory()->StoreImages(given, kNoLimit);
  };
  EXPECT_TRUE(
      absl::IsInvalidArgument(store({images.pixels.subspan(1), images.mean, images.stddev})));
  EXPECT_TRUE(absl::IsInvalidArgument(store({images.pixels, two, images.stddev})));
  EXPECT_TRUE(absl::IsInvalidArgument(store({images.pixels, images.mean, two})));
  const auto of = [](const Shape& input) {
    return Compile(testing::TestedBackend(), *BuildMlp({.input = input, .classes = 3}), {}, {});
  };
  const std::vector<float> five(5, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      of({5, 2, 2})->image_memory()->StoreImages({{}, five, five}, kNoLimit)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(of({5})->image_memory()->StoreImages({{}, five, five}, kNoLimit)));
}

TEST(StoredImages, BackendsOfTheHostReadFloatsAlone) {
  for (const char* name : {"cpu", "reference"}) {
    const auto executable = Compile(name, Model(), {}, {.max_rows = 2});
    EXPECT_EQ(executable->image_memory(), nullptr);
    const std::vector<StoredRow> rows(2);
    const std::vector<int32_t> labels(2, 1);
    EXPECT_TRUE(absl::IsFailedPrecondition(
        executable->Accumulate({.inputs = {}, .labels = labels, .stored = rows}, 1, nullptr)));
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
