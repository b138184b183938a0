// Tests small trainings as a whole: which results must not depend on the number of ranks, and which
// data is read.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::HasSubstr;

class SameResultTest : public ::testing::TestWithParam<std::tuple<const char*, bool, int>> {};

TEST_P(SameResultTest, OnAnyNumberOfRanks) {
  const auto [backend, batch_norm, world_size] = GetParam();
  const JobText job = batch_norm ? WithBatchNorm() : JobText();
  GangTrainer alone(job, 1, backend);
  ExpectSuccess(alone.Run());
  GangTrainer gang(job, world_size, backend);
  ExpectSuccess(gang.Run());
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Metric("train.accuracy"), gang.Metric("train.accuracy"));
  ExpectNear(alone.Metric("test.loss"), gang.Metric("test.loss"));
  ExpectNear(alone.Metric("test.accuracy"), gang.Metric("test.accuracy"));
  EXPECT_EQ(alone.Metric("lr"), gang.Metric("lr"));
  ExpectNear(alone.Model(kSteps), gang.Model(kSteps));
  EXPECT_EQ(alone.Metric("train.loss").size(), static_cast<size_t>(kSteps));
}

INSTANTIATE_TEST_SUITE_P(Gangs, SameResultTest,
                         ::testing::Combine(::testing::Values("reference", "cpu"),
                                            ::testing::Bool(), ::testing::Values(2, 3)),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param), "_",
                                               std::get<1>(instance.param) ? "batch_norm_" : "",
                                               std::get<2>(instance.param), "_ranks");
                         });

TEST(Train, BatchNormStatisticsBelongToReplicasNotToRanks) {
  JobText one_replica = WithBatchNorm();
  one_replica.train = R"({"epochs": 2, "global_batch": 16, "replicas": 1, "seed": 5})";
  GangTrainer one(one_replica, 1), three(WithBatchNorm(), 1);
  ExpectSuccess(one.Run());
  ExpectSuccess(three.Run());
  EXPECT_GT(std::abs(one.Metric("train.loss")[2] - three.Metric("train.loss")[2]), 1e-4);
}

// Statistics are over all rows of the global batch, whichever ranks have them, as with a single
// replica. The last batch leaves one of three ranks without rows, and the others must not wait for
// it.
TEST(Train, SynchronisedBatchNormEqualsOneReplica) {
  JobText synchronised = WithBatchNorm();
  synchronised.train =
      R"({"epochs": 2, "global_batch": 16, "replicas": 3, "seed": 5, "sync_batch_norm": true})";
  JobText one_replica = WithBatchNorm();
  one_replica.train = R"({"epochs": 2, "global_batch": 16, "replicas": 1, "seed": 5})";
  for (const char* backend : {"reference", "cpu"}) {
    GangTrainer expected(one_replica, 1, backend);
    ExpectSuccess(expected.Run());
    for (const int ranks : {1, 2, 3}) {
      GangTrainer gang(synchronised, ranks, backend);
      ExpectSuccess(gang.Run());
      ExpectNear(expected.Metric("train.loss"), gang.Metric("train.loss"));
      // The values are not compared to the last digits: a rounding that turns one unit off changes
      // its channel's statistics.
      const auto one = expected.Model(kSteps), many = gang.Model(kSteps);
      for (const auto& [name, tensor] : one.tensors) {
        const auto a = checkpoint::FloatValues(tensor).value();
        const auto b = checkpoint::FloatValues(many.tensors.at(name)).value();
        for (size_t i = 0; i < a.size(); ++i) {
          ASSERT_NEAR(a[i], b[i], 3e-4 * (1 + std::abs(a[i]))) << name << "[" << i << "]";
        }
      }
    }
  }
}

TEST(Train, AGangMeasuresItsCommunicationAndRecordsATimeline) {
  GangTrainer gang(WithBatchNorm(), 2, "cpu");
  ExpectSuccess(gang.Run());
  for (const char* name : {"compute.seconds", "comm.seconds", "comm.exposed_seconds",
                           "comm.hidden_fraction", "comm.bytes"}) {
    EXPECT_FALSE(gang.Metric(name).empty()) << name;
    for (const auto& [step, value] : gang.Metric(name)) EXPECT_GE(value, 0) << name;
  }
  for (const int rank : {0, 1}) {
    const std::string trace = ReadFile(gang.dir().TracePath(rank)).value_or("");
    for (const char* name :
         {"process_name", "forward+backward 0", "reduce bucket 0", "update", "wait for data"}) {
      EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"name\":\"", name, "\""))) << rank;
    }
    EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"pid\":", rank, ",")));
  }
}

TEST(Train, AugmentationDoesNotDependOnTheRanks) {
  const JobText job = WithAugmentation();
  GangTrainer alone(job, 1);
  ExpectSuccess(alone.Run());
  GangTrainer gang(job, 3);
  ExpectSuccess(gang.Run());
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Model(kSteps), gang.Model(kSteps));
  GangTrainer plain(JobText(), 1);
  ExpectSuccess(plain.Run());
  EXPECT_GT(std::abs(alone.Metric("train.loss")[1] - plain.Metric("train.loss")[1]), 1e-4);
}

// There are 24 images of two classes, one of which is truncated, and a test split of 5 with one
// truncated image.
class ImagesJob {
 public:
  ImagesJob() {
    for (int i = 0; i < 24; ++i) {
      Write(absl::StrCat("pets/train/", i % 2 == 0 ? "cat" : "dog", "/", i, ".jpg"),
            Image(i, i == 6));
    }
    for (int i = 0; i < 5; ++i) Write(absl::StrCat("pets/val/dog/", i, ".jpg"), Image(i, i == 3));
    job.model = R"({"convnet": {"channels": [4, 6], "input": [3, 16, 16], "classes": 2}})";
    job.train = R"({"epochs": 2, "global_batch": 6, "replicas": 3, "seed": 5})";
    job.data =
        R"({"dataset": "images", "path": "pets", "image_size": 16, "on_corrupt": "ON_CORRUPT_SKIP",
                   "augment": {"random_resized_crop": {}, "flip": true}})";
  }

  const std::string& path() const { return folder_.path(); }

  JobText job;

 private:
  static std::string Image(int i, bool is_cut) {
    const std::string bytes = data::SlopeJpeg(40 + i, 30, {.quality = 90});
    return is_cut ? bytes.substr(0, bytes.size() / 2) : bytes;
  }
  void Write(const std::string& name, const std::string& content) {
    TY_CHECK_OK(MakeDirectories(folder_.File(name.substr(0, name.rfind('/')))));
    folder_.Write(name, content);
  }

  testing::TempDir folder_;
};

TEST(TrainImages, SkippedSamplesAreCountedAndDoNotDependOnTheRanks) {
  const ImagesJob images;
  GangTrainer alone(images.job, 1), gang(images.job, 3);
  alone.assignment().dataset_dir = images.path();
  gang.assignment().dataset_dir = images.path();
  ExpectSuccess(alone.Run(), 8);
  ExpectSuccess(gang.Run(), 8);
  ExpectNear(alone.Metric("train.loss"), gang.Metric("train.loss"));
  ExpectNear(alone.Model(8), gang.Model(8));
  // This happens once in an epoch, at the same steps.
  const auto skipped = alone.Metric("train.skipped");
  EXPECT_EQ(skipped.size(), 2U);
  for (const auto& [step, count] : skipped) EXPECT_EQ(count, 1) << step;
  EXPECT_EQ(gang.Metric("train.skipped"), skipped);
  EXPECT_EQ(alone.Metric("test.skipped").at(8), 1);
  ExpectNear(alone.Metric("test.loss"), gang.Metric("test.loss"));
}

TEST(TrainImages, ACorruptSampleFailsTheJobUnlessItIsToBeSkipped) {
  ImagesJob images;
  images.job.data = R"({"dataset": "images", "path": "pets", "image_size": 16,
                        "normalize": "NORMALIZE_UNIT"})";
  GangTrainer trainer(images.job, 1);
  trainer.assignment().dataset_dir = images.path();
  const run_dir::RankResult result = trainer.Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_EQ(result.reason, "CORRUPT_FILE");
  EXPECT_THAT(result.message, HasSubstr("pets/train/cat/6.jpg' is corrupt: byte "));
}

}  // namespace
}  // namespace trainyard::trainer
