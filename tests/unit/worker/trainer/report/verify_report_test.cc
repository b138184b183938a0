// Tests that the report confirms a correct checkpoint, and names what is wrong with any other.
#include "worker/trainer/report/verify_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/make_backend.h"

namespace trainyard::trainer {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Folder(const GangTrainer& trainer, int64_t step = kSteps) {
  return checkpoint::CheckpointPath(trainer.dir().CheckpointsDir(), step);
}

VerifyReport Verified(const std::string& folder, VerifyFormat format = VerifyFormat::kText) {
  const auto report =
      Verify({.checkpoint_dir = folder, .dataset_dir = "", .format = format}, *Clock::Real());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.value_or(VerifyReport{});
}

void Overwrite(const std::string& path, const std::string& content) {
  TY_CHECK_OK(WriteFileAtomically(path, content));
}

// Makes a copy of the checkpoint with another state.json, as if it had been written so, in a folder
// beside it.
std::string WithState(const GangTrainer& trainer, const std::string& from, const std::string& to) {
  std::vector<checkpoint::CheckpointFile> files;
  const auto manifest = checkpoint::VerifyCheckpoint(Folder(trainer));
  TY_CHECK_OK(manifest.status());
  for (const checkpoint::ManifestEntry& entry : manifest->files) {
    files.push_back({entry.name, trainer.CheckpointBytes(kSteps, entry.name)});
    if (entry.name != "state.json") continue;
    std::string& state = files.back().content;
    EXPECT_THAT(state, HasSubstr(from));
    state = absl::StrReplaceAll(state, {{from, to}});
  }
  const std::string beside = absl::StrCat(trainer.dir().root(), "/changed");
  TY_CHECK_OK(RemoveTree(beside));
  TY_CHECK_OK(checkpoint::WriteCheckpoint(beside, kSteps, files));
  return checkpoint::CheckpointPath(beside, kSteps);
}

class VerifyTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

// One process makes what all ranks made.
TEST_P(VerifyTest, TheEvaluationComesBackBitForBit) {
  const auto& [backend, ranks] = GetParam();
  JobText job = WithAugmentation();
  job.model = WithBatchNorm().model;
  job.optimizer = R"({"sgd": {"lr": 0.05}, "ema_decay": 0.9})";
  GangTrainer trainer(job, ranks, backend);
  ExpectSuccess(trainer.Run());
  for (const int64_t step : {4, 8}) {
    const VerifyReport report = Verified(Folder(trainer, step));
    EXPECT_TRUE(report.is_right) << report.text;
    for (const char* metric : {"test.loss", "test.accuracy", "test.top5", "test.ema_loss",
                               "test.ema_accuracy", "test.ema_top5"}) {
      EXPECT_THAT(report.text, ContainsRegex(absl::StrCat("\n", metric, " .* yes\n")));
    }
    EXPECT_THAT(report.text, HasSubstr("all 13 are as recorded\n"));
  }
}

INSTANTIATE_TEST_SUITE_P(Gangs, VerifyTest,
                         ::testing::Combine(::testing::Values("reference", "cpu"),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param), "_",
                                               std::get<1>(instance.param), "_ranks");
                         });

// Holds one finished training for all tests that only look at it.
class VerifyChanged : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trainer_ = new GangTrainer(JobText(), 1, "cpu");
    ExpectSuccess(trainer_->Run());
  }
  static void TearDownTestSuite() {
    delete trainer_;
    trainer_ = nullptr;
  }
  static GangTrainer* trainer_;
};
GangTrainer* VerifyChanged::trainer_ = nullptr;

TEST_F(VerifyChanged, AnotherLossIsToldWithItsDistance) {
  const double loss = trainer_->Metric("test.loss").at(kSteps);
  const std::string state = trainer_->CheckpointBytes(kSteps, "state.json");
  const size_t at = state.find("\"test.loss\": ");
  const std::string line = state.substr(at, state.find_first_of(",\n", at) - at);
  const std::string folder =
      WithState(*trainer_, line, absl::StrCat("\"test.loss\": ", loss + 0.25));
  const VerifyReport report = Verified(folder);
  EXPECT_FALSE(report.is_right);
  EXPECT_THAT(report.text, ContainsRegex("\ntest.loss .* \\(-0.25\\) +NO\n"));
  EXPECT_THAT(report.text, ContainsRegex("\ntest.accuracy .* yes\n"));
  EXPECT_THAT(report.text, HasSubstr("1 of 9 differ: test.loss\n"));
  EXPECT_THAT(Verified(folder, VerifyFormat::kJson).text, HasSubstr("\"ok\": false"));
}

// The CPU plays the GPU here, since only the name of the backend matters.
TEST_F(VerifyChanged, RoundingOfAStatisticalJobOnAGpuIsNoDifference) {
  engine::RegisterBackend("cuda", [] { return engine::MakeBackend("cpu"); });
  const double loss = trainer_->Metric("test.loss").at(kSteps);
  const std::string state = trainer_->CheckpointBytes(kSteps, "state.json");
  const size_t at = state.find("\"test.loss\": ");
  const std::string line = state.substr(at, state.find_first_of(",\n", at) - at);
  const auto verify = [&](double distance, const std::string& backend) {
    const std::string changed =
        absl::StrReplaceAll(state, {{line, absl::StrCat("\"test.loss\": ", loss + distance)},
                                    {R"("backend": "cpu")", backend}});
    return Verified(WithState(*trainer_, state, changed));
  };
  const VerifyReport rounded = verify(1e-4, R"("backend": "cuda")");
  EXPECT_TRUE(rounded.is_right) << rounded.text;
  EXPECT_THAT(rounded.text, ContainsRegex("\ntest.loss .* \\(-[0-9.e-]+\\) +yes\n"));
  EXPECT_FALSE(verify(1e-1, R"("backend": "cuda")").is_right);
  EXPECT_FALSE(verify(1e-4, R"("backend": "cpu")").is_right);
}

TEST_F(VerifyChanged, OtherDataAreNotComparedWith) {
  const VerifyReport report = Verified(WithState(*trainer_, "split=test", "split=other"));
  EXPECT_FALSE(report.is_right);
  EXPECT_THAT(report.text, ContainsRegex("\ntest data .*split=other.*split=test.* NO\n"));
  EXPECT_THAT(report.text, HasSubstr("not evaluated: the data here are not those"));
}

TEST_F(VerifyChanged, WithoutTheDataSetTheFilesAlone) {
  const VerifyReport report =
      Verified(WithState(*trainer_, "\"dataset\": \"glyphs\"", "\"dataset\": \"mnist\""));
  EXPECT_TRUE(report.is_right);
  EXPECT_THAT(report.text, HasSubstr("files only: data set 'mnist' is not here: "));
  EXPECT_THAT(report.text, HasSubstr("all 3 are as recorded\n"));
}

TEST_F(VerifyChanged, WithoutARecordTheFilesAlone) {
  const VerifyReport report = Verified(WithState(*trainer_, "\"evaluation\"", "\"of old\""));
  EXPECT_TRUE(report.is_right);
  EXPECT_THAT(report.text, HasSubstr("files only: state.json records no evaluation"));
}

TEST_F(VerifyChanged, EveryDamagedMissingAndAddedFileIsNamed) {
  const std::string folder = WithState(*trainer_, "\"format\"", "\"format\"");
  std::string model = trainer_->CheckpointBytes(kSteps, "model.safetensors");
  model[model.size() / 2] = static_cast<char>(model[model.size() / 2] ^ 1);
  Overwrite(JoinPath(folder, "model.safetensors"), model);
  TY_CHECK_OK(RemoveTree(JoinPath(folder, "optimizer.safetensors")));
  Overwrite(JoinPath(folder, "notes.txt"), "mine");
  const VerifyReport report = Verified(folder);
  EXPECT_FALSE(report.is_right);
  EXPECT_THAT(report.text, ContainsRegex("\nmodel.safetensors +xxh3-128:.* xxh3-128:.* NO\n"));
  EXPECT_THAT(report.text, ContainsRegex("\noptimizer.safetensors .* missing +NO\n"));
  EXPECT_THAT(report.text, ContainsRegex("\nnotes.txt +not in MANIFEST +present +NO\n"));
  EXPECT_THAT(report.text, ContainsRegex("\nstate.json .* yes\n"));
  EXPECT_THAT(report.text, Not(HasSubstr("test.loss")));
  TY_CHECK_OK(RemoveTree(JoinPath(folder, "MANIFEST")));
  const auto refused = Verify({.checkpoint_dir = folder, .dataset_dir = ""}, *Clock::Real());
  EXPECT_EQ(ErrorReason(refused.status()), "CORRUPT_FILE");
}

TEST(Verify, AFolderThatIsNotThereIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(
      Verify({.checkpoint_dir = "/nowhere", .dataset_dir = ""}, *Clock::Real()).status()));
}

}  // namespace
}  // namespace trainyard::trainer
