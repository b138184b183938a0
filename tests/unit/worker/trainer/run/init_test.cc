// Tests runs that start from a file of weights, and inline layers through the whole trainer.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/run/initial_weights.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kInitSteps = 8;
// Fields of spec.init in which the tests differ.
struct InitFields {
  std::string checkpoint = "weights/a.safetensors";
  std::vector<std::string> skip = {};
  std::string digest = {};

  v1::InitSpec Spec() const {
    v1::InitSpec spec;
    spec.set_checkpoint(checkpoint);
    for (const std::string& prefix : skip) spec.add_skip(prefix);
    if (!digest.empty()) spec.set_digest(digest);
    return spec;
  }
};

constexpr char kInit[] = R"(, "init": {"checkpoint": "weights/a.safetensors"})";

void ExpectStartSuccess(const std::vector<run_dir::RankResult>& results) {
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  }
}

// A folder of data sets with weights/a.safetensors in it.
class Weights {
 public:
  explicit Weights(const std::string& bytes) {
    TY_CHECK_OK(MakeDirectories(JoinPath(folder_.path(), "weights")));
    TY_CHECK_OK(WriteFileAtomically(File(), bytes));
  }
  explicit Weights(const checkpoint::TensorFile& file)
      : Weights(checkpoint::EncodeSafetensors(file)) {}

  const std::string& path() const { return folder_.path(); }
  std::string File() const { return JoinPath(folder_.path(), "weights/a.safetensors"); }

 private:
  testing::TempDir folder_;
};

JobText Convnet() {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  return job;
}

// The checkpoint that a run of eight steps leaves.
std::string TrainedConvnet() {
  GangTrainer run(Convnet(), 1);
  ExpectStartSuccess(run.Run());
  return run.CheckpointBytes(kInitSteps, "model.safetensors");
}

std::string MetricText(const GangTrainer& run) {
  std::string text;
  for (const char* name : {"train.loss", "test.loss"}) {
    for (const auto& [step, value] : run.Metric(name)) {
      absl::StrAppendFormat(&text, "%s %d %.17g\n", name, step, value);
    }
  }
  return text;
}

void ExpectEqualRuns(const GangTrainer& left, const GangTrainer& right) {
  EXPECT_EQ(MetricText(left), MetricText(right));
  EXPECT_EQ(left.CheckpointBytes(kInitSteps, "model.safetensors"),
            right.CheckpointBytes(kInitSteps, "model.safetensors"));
}

TEST(InlineLayers, TheConvnetSpelledOutTrainsToTheSameBytes) {
  JobText built_in;
  JobText spelled_out;
  spelled_out.model = R"({"layers": {"stack": [
    {"name": "conv1", "conv2d": {"channels": 4, "padding": 1}}, {"relu": {}}, {"max_pool": {}},
    {"name": "conv2", "conv2d": {"channels": 6, "padding": 1}}, {"relu": {}}, {"max_pool": {}},
    {"flatten": {}}, {"name": "fc", "linear": {"features": 10}}]}})";
  for (const int ranks : {1, 2}) {
    GangTrainer left(built_in, ranks, "cpu"), right(spelled_out, ranks, "cpu");
    ExpectStartSuccess(left.Run());
    ExpectStartSuccess(right.Run());
    ExpectEqualRuns(left, right);
  }
}

// The layers of resnet-20 for glyphs, as in a spec.
std::string Resnet20() {
  std::vector<std::string> stack;
  const auto add = [&stack](absl::string_view name, absl::string_view from,
                            absl::string_view kind) {
    stack.push_back(
        absl::StrCat("{", name.empty() ? "" : absl::StrCat("\"name\": \"", name, "\", "),
                     from.empty() ? "" : absl::StrCat("\"from\": [", from, "], "), kind, "}"));
  };
  const auto conv = [](int channels, int kernel, int stride) {
    return absl::StrCat("\"conv2d\": {\"channels\": ", channels, ", \"kernel\": ", kernel,
                        ", \"stride\": ", stride, ", \"padding\": ", kernel / 2,
                        ", \"bias\": false}");
  };
  constexpr char kNorm[] = "\"batch_norm\": {}";
  constexpr char kRelu[] = "\"relu\": {}";
  std::string last = "first";
  add("conv1", "", conv(16, 3, 1));
  add("bn1", "", kNorm);
  add(last, "", kRelu);
  for (int stage = 1; stage <= 3; ++stage) {
    for (int block = 0; block < 3; ++block) {
      const std::string name = absl::StrCat("layer", stage, ".", block);
      const int stride = stage > 1 && block == 0 ? 2 : 1;
      add(name + ".conv1", "", conv(8 << stage, 3, stride));
      add(name + ".bn1", "", kNorm);
      add("", "", kRelu);
      add(name + ".conv2", "", conv(8 << stage, 3, 1));
      add(name + ".bn2", "", kNorm);
      if (stride == 2) {
        add(name + ".downsample.0", absl::StrCat("\"", last, "\""), conv(8 << stage, 1, 2));
        last = name + ".downsample.1";
        add(last, "", kNorm);
      }
      add("", absl::StrCat("\"", name, ".bn2\", \"", last, "\""), "\"add\": {}");
      last = name + ".out";
      add(last, "", kRelu);
    }
  }
  add("", "", "\"global_avg_pool\": {}");
  add("", "", "\"flatten\": {}");
  add("fc", "", "\"linear\": {\"features\": 10}");
  return absl::StrCat(R"({"layers": {"stack": [)", absl::StrJoin(stack, ", "), "]}}");
}

// The zoo's residual networks start as He et al. say, and layers as PyTorch's do: so both start
// from one file here.
TEST(InlineLayers, Resnet20SpelledOutTrainsToTheSameBytes) {
  JobText built_in;
  built_in.model =
      R"({"resnet": {"depth": 20, "stem": "STEM_CIFAR", "classes": 10, "input": [1, 28, 28]}})";
  GangTrainer start(built_in, 1, "cpu");
  ExpectStartSuccess(start.Run());
  const Weights weights(start.CheckpointBytes(kInitSteps, "model.safetensors"));
  JobText spelled_out;
  spelled_out.model = Resnet20();
  built_in.more = spelled_out.more = kInit;
  GangTrainer left(built_in, 1, "cpu"), right(spelled_out, 1, "cpu");
  left.assignment().dataset_dir = right.assignment().dataset_dir = weights.path();
  ExpectStartSuccess(left.Run());
  ExpectStartSuccess(right.Run());
  ExpectEqualRuns(left, right);
  EXPECT_NE(MetricText(left), MetricText(start));
}

TEST(Init, ARunStartsWithTheWeightsAndStatisticsOfTheFile) {
  const std::string bytes = TrainedConvnet();
  const Weights weights(bytes);
  const auto spec = ParseSpec(Convnet().Spec());
  auto model = CompileModel(*spec, {.backend = "reference"});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto digest =
      LoadInitialWeights(InitFields().Spec(), {.datasets = weights.path()}, *model->executable);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(*digest, ContentHash(bytes));
  const auto file = checkpoint::DecodeSafetensors(bytes);
  int compared = 0;
  for (size_t i = 0; i < model->executable->state().size(); ++i) {
    const engine::StateTensor& tensor = model->executable->state()[i];
    if (tensor.kind == engine::StateTensor::Kind::kOptimizerSlot) continue;
    std::vector<float> values(static_cast<size_t>(engine::ElementCount(tensor.shape)));
    ASSERT_TRUE(model->executable->ReadState(i, absl::MakeSpan(values)).ok());
    EXPECT_EQ(values, *checkpoint::FloatValues(file->tensors.at(tensor.name))) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

TEST(Init, AJobsCheckpointBeginsANewTrainingAsItsFileDoes) {
  GangTrainer first(Convnet(), 1);
  ExpectStartSuccess(first.Run());
  const Weights weights(first.CheckpointBytes(kInitSteps, "model.safetensors"));
  JobText of_file = Convnet();
  of_file.more += kInit;
  GangTrainer left(of_file, 1);
  left.assignment().dataset_dir = weights.path();
  ExpectStartSuccess(left.Run());
  JobText of_job = Convnet();
  of_job.more += R"(, "init": {"job": "jobs/1/checkpoints/8"})";
  GangTrainer right(of_job, 1);
  right.assignment().init_from = checkpoint::CheckpointPath(first.dir().CheckpointsDir(), 8);
  ExpectStartSuccess(right.Run());
  ExpectEqualRuns(left, right);
  EXPECT_EQ(right.Metric("train.loss").begin()->first, 1);
}

TEST(Init, AJobsCheckpointThatNobodySentIsRefused) {
  JobText job = Convnet();
  job.more += R"(, "init": {"job": "jobs/1/checkpoints/8"})";
  GangTrainer run(job, 1);
  const auto results = run.Run();
  EXPECT_EQ(results[0].outcome, Outcome::kUserError);
  EXPECT_THAT(results[0].message, HasSubstr("only a server can send"));
}

TEST(Init, OnAnyNumberOfRanksAndIntoTheState) {
  const std::string bytes = TrainedConvnet();
  const Weights weights(bytes);
  JobText job = Convnet();
  job.more = kInit;
  GangTrainer alone(job, 1), gang(job, 3), anew(Convnet(), 1);
  alone.assignment().dataset_dir = gang.assignment().dataset_dir = weights.path();
  ExpectStartSuccess(alone.Run());
  ExpectStartSuccess(gang.Run());
  ExpectStartSuccess(anew.Run());
  for (const auto& [step, loss] : alone.Metric("train.loss")) {
    EXPECT_NEAR(loss, gang.Metric("train.loss")[step], 1e-5 * (1 + loss));
  }
  EXPECT_NE(alone.Metric("train.loss")[1], anew.Metric("train.loss")[1]);
  EXPECT_THAT(gang.CheckpointBytes(kInitSteps, "state.json"),
              HasSubstr(absl::StrCat("\"init_digest\": \"", ContentHash(bytes), "\"")));
  EXPECT_THAT(anew.CheckpointBytes(kInitSteps, "state.json"), Not(HasSubstr("init_digest")));
}

TEST(Init, ARunThatResumesReadsTheFileNoMore) {
  const Weights weights(TrainedConvnet());
  JobText job = Convnet();
  job.more = kInit;
  GangTrainer whole(job, 2);
  whole.assignment().dataset_dir = weights.path();
  ExpectStartSuccess(whole.Run());
  GangTrainer resumed(job, 2);  // without a folder of data sets
  resumed.assignment().resume_from = checkpoint::CheckpointPath(whole.dir().CheckpointsDir(), 4);
  ExpectStartSuccess(resumed.Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(resumed.CheckpointBytes(kInitSteps, file), whole.CheckpointBytes(kInitSteps, file))
        << file;
  }
}

// Returns the message of loading `file` into the convnet.
absl::Status Loaded(const checkpoint::TensorFile& file, const InitFields& init = {}) {
  const Weights weights(file);
  const auto spec = ParseSpec(Convnet().Spec());
  auto model = CompileModel(*spec, {.backend = "reference"});
  TY_CHECK_OK(model.status());
  return LoadInitialWeights(init.Spec(), {.datasets = weights.path()}, *model->executable).status();
}

std::vector<std::string> Violations(const absl::Status& status) {
  std::vector<std::string> texts;
  for (const FieldViolation& violation : GetFieldViolations(status)) {
    texts.push_back(absl::StrCat(violation.field, ": ", violation.description));
  }
  return texts;
}

class InitFileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = new checkpoint::TensorFile(*checkpoint::DecodeSafetensors(TrainedConvnet()));
  }
  static void TearDownTestSuite() { delete trained_; }

  static checkpoint::TensorFile* trained_;
  checkpoint::TensorFile file_ = *trained_;
};
checkpoint::TensorFile* InitFileTest::trained_ = nullptr;

TEST_F(InitFileTest, AnotherClassifierIsNamedAndMayBeSkipped) {
  const std::vector<float> zeros(size_t{5} * 294);
  file_.tensors["fc.weight"] = checkpoint::FloatTensor({5, 294}, zeros.data());
  file_.tensors["fc.bias"] = checkpoint::FloatTensor({5}, zeros.data());
  EXPECT_THAT(
      Violations(Loaded(file_)),
      ElementsAre("spec.init.checkpoint: 'weights/a.safetensors' has 2 tensors of another shape: "
                  "'fc.weight' is [5, 294], the model's [10, 294], 'fc.bias' is [5], the model's "
                  "[10]; to start them at random values, write init.skip: [fc.]"));
  EXPECT_TRUE(Loaded(file_, {.skip = {"fc."}}).ok());
}

TEST_F(InitFileTest, WhatIsMissingAndWhatIsUnexpectedIsListed) {
  file_.tensors.erase("bn1.weight");
  file_.tensors["head.weight"] = file_.tensors["fc.weight"];
  EXPECT_THAT(Violations(Loaded(file_)),
              ElementsAre(HasSubstr("lacks 1 tensor of the model: 'bn1.weight' [4]"),
                          HasSubstr("has 1 tensor that the model has not: 'head.weight' [10, 294]; "
                                    "to start at random values what does not fit, and to leave out "
                                    "what the model has not, write init.skip: [bn1., head.]")));
  EXPECT_TRUE(Loaded(file_, {.skip = {"bn1.", "head."}}).ok());
  EXPECT_THAT(Violations(Loaded(file_, {.skip = {"bn1.", "head.", "heat."}})),
              ElementsAre(HasSubstr("spec.init.skip[2]: 'heat.' begins no name")));
}

// Whoever writes what the message says gets a file that fits.
TEST_F(InitFileTest, TheHintKeepsWhatIsSkippedAndNamesWhatIsUnexpected) {
  const std::vector<float> zeros(size_t{5} * 294);
  file_.tensors["fc.weight"] = checkpoint::FloatTensor({5, 294}, zeros.data());
  file_.tensors["fc.bias"] = checkpoint::FloatTensor({5}, zeros.data());
  file_.tensors["scale"] = file_.tensors["bn1.weight"];
  EXPECT_THAT(Violations(Loaded(file_, {.skip = {"fc.", "gone."}})),
              ElementsAre(HasSubstr("'scale' [4]; to leave them out, write init.skip: "
                                    "[fc., scale]"),
                          HasSubstr("spec.init.skip[1]: 'gone.' begins no name")));
  EXPECT_TRUE(Loaded(file_, {.skip = {"fc.", "scale"}}).ok());
}

TEST_F(InitFileTest, LongListsAreCut) {
  checkpoint::TensorFile other;
  for (int i = 0; i < 30; ++i) {
    other.tensors[absl::StrCat("t", i)] = file_.tensors["fc.bias"];
  }
  const std::vector<std::string> texts = Violations(Loaded(other));
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_THAT(texts[0], HasSubstr("lacks 12 tensors of the model"));
  EXPECT_THAT(texts[0], HasSubstr(" and 2 more"));
  EXPECT_THAT(texts[1], AllOf(HasSubstr(" and 20 more"), Not(HasSubstr("init.skip"))));
}

TEST_F(InitFileTest, PyTorchsCountersAreIgnoredAndOtherFloatsConverted) {
  checkpoint::Tensor counter{"I64", {}, std::string(8, '\1')};
  file_.tensors["bn1.num_batches_tracked"] = counter;
  file_.tensors["bn1.weight"] = {"BF16", {4}, std::string("\x80\x3f\x80\x3f\x80\x3f\x80\x3f", 8)};
  EXPECT_TRUE(Loaded(file_).ok()) << Loaded(file_);
  file_.tensors["bn1.weight"] = {"I32", {4}, std::string(16, '\0')};
  EXPECT_THAT(Violations(Loaded(file_)),
              ElementsAre(HasSubstr("tensor 'bn1.weight' has dtype I32; expected F32, F64")));
}

TEST_F(InitFileTest, AnotherFileThanTheDigestsIsRefused) {
  EXPECT_THAT(Violations(Loaded(file_, {.digest = "xxh3-128:0"})),
              ElementsAre(AllOf(HasSubstr("spec.init.digest: is 'xxh3-128:0', but"),
                                HasSubstr("here is 'xxh3-128:"))));
  const std::string digest = ContentHash(checkpoint::EncodeSafetensors(file_));
  EXPECT_TRUE(Loaded(file_, {.digest = digest}).ok());
}

TEST_F(InitFileTest, FilesThatCannotBeReadAreNamed) {
  const absl::Status missing = Loaded(file_, {.checkpoint = "weights/b.safetensors"});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorReason(missing), "INIT_NOT_FOUND");
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/weights/b.safetensors; put it there"));
  EXPECT_THAT(Violations(Loaded(file_, {.checkpoint = "../a.safetensors"})),
              ElementsAre(HasSubstr("leads out of the folder of data sets")));
  const auto spec = ParseSpec(Convnet().Spec());
  auto model = CompileModel(*spec, {.backend = "reference"});
  const auto load = [&](const std::string& bytes) {
    const Weights weights(bytes);
    return LoadInitialWeights(InitFields().Spec(), {.datasets = weights.path()}, *model->executable)
        .status();
  };
  EXPECT_THAT(Violations(load("PK\x03\x04 and so on")),
              ElementsAre(HasSubstr("is a file of torch.save; expected safetensors")));
  EXPECT_EQ(load("no safetensors at all").code(), absl::StatusCode::kDataLoss);
  const absl::Status nowhere =
      LoadInitialWeights(InitFields{.checkpoint = "a"}.Spec(), {}, *model->executable).status();
  EXPECT_EQ(ErrorReason(nowhere), "INIT_NOT_FOUND");
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("set the worker's --dataset_dir"));
}

}  // namespace
}  // namespace trainyard::trainer
