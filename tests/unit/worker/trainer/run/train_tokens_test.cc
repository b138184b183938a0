// Tests whole trainings of a small language model on generated tokens.
#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/token_files.h"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "tests/unit/worker/trainer/train_testing.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::trainer {
namespace {

using run_dir::Outcome;
using ::testing::HasSubstr;

constexpr int64_t kContext = 6;
constexpr int64_t kVocabulary = 11;
// There are 41 windows for training: three batches of 12 and one of 5, twice.
constexpr size_t kTestTokens = 100;

// A folder of tokens and a job that trains on them.
class TokenJob {
 public:
  explicit TokenJob(double dropout) {
    TY_CHECK_OK(MakeDirectories(folder_.File("made")));
    folder_.Write("made/train.bin", data::RawTokens(data::LearnableTokens(41 * kContext + 3, 11)));
    folder_.Write("made/val.bin", data::HeadedTokens(data::LearnableTokens(kTestTokens, 11)));
    job.model =
        absl::StrCat(R"({"gpt2": {"layers": 2, "heads": 2, "width": 8, "context": )", kContext,
                     R"(, "vocabulary": )", kVocabulary, R"(, "dropout": )", dropout, "}}");
    job.data = R"({"dataset": "tokens", "path": "made"})";
    job.train = R"({"epochs": 2, "global_batch": 12, "replicas": 3, "seed": 5})";
    job.optimizer = R"({"adamw": {"lr": 0.01, "betas": [0.9, 0.95], "weight_decay": 0.1,
                        "decay_bias_and_norm": false}, "clip_norm": 1})";
    job.more = R"(, "schedule": {"warmup_epochs": 0.5, "cosine": {}})";
  }

  std::unique_ptr<GangTrainer> Trainer(int world_size, const std::string& backend) const {
    auto trainer = std::make_unique<GangTrainer>(job, world_size, backend);
    trainer->assignment().dataset_dir = folder_.path();
    return trainer;
  }
  void Write(const std::string& name, const std::string& bytes) { folder_.Write(name, bytes); }

  JobText job;

 private:
  testing::TempDir folder_;
};

std::vector<float> WeightsOf(const GangTrainer& trainer, const std::string& name) {
  return checkpoint::FloatValues(trainer.Model(kSteps).tensors.at(name)).value();
}

class TokenGangTest : public ::testing::TestWithParam<std::tuple<const char*, double>> {};

// Dropout depends on the row's place in the global batch, not on the rank.
TEST_P(TokenGangTest, TheResultDoesNotDependOnTheNumberOfRanks) {
  const auto& [backend, dropout] = GetParam();
  const TokenJob tokens(dropout);
  const auto alone = tokens.Trainer(1, backend);
  ExpectSuccess(alone->Run());
  for (const int world_size : {2, 3}) {
    const auto gang = tokens.Trainer(world_size, backend);
    ExpectSuccess(gang->Run());
    EXPECT_EQ(alone->Metric("lr"), gang->Metric("lr"));
    for (const char* metric :
         {"train.loss", "train.accuracy", "test.loss", "test.accuracy", "test.perplexity"}) {
      const std::map<int64_t, double> expected = alone->Metric(metric);
      std::map<int64_t, double> got = gang->Metric(metric);
      EXPECT_FALSE(expected.empty()) << metric;
      ASSERT_EQ(got.size(), expected.size()) << metric;
      for (const auto& [step, value] : expected) {
        EXPECT_NEAR(got[step], value, 2e-4 * (1 + std::abs(value))) << metric << " at " << step;
      }
    }
    const std::vector<float> expected = WeightsOf(*alone, "transformer.wte.weight");
    const std::vector<float> got = WeightsOf(*gang, "transformer.wte.weight");
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-3) << i;
  }
}

TEST_P(TokenGangTest, AResumedRunEqualsTheUndisturbedOneBitForBit) {
  const auto& [backend, dropout] = GetParam();
  const TokenJob tokens(dropout);
  const auto whole = tokens.Trainer(2, backend);
  ExpectSuccess(whole->Run());
  const auto resumed = tokens.Trainer(2, backend);
  resumed->assignment().resume_from = checkpoint::CheckpointPath(whole->dir().CheckpointsDir(), 4);
  ExpectSuccess(resumed->Run());
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(resumed->CheckpointBytes(kSteps, file), whole->CheckpointBytes(kSteps, file)) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, TokenGangTest,
                         ::testing::Combine(::testing::Values("reference", "cpu"),
                                            ::testing::Values(0, 0.25)),
                         [](const auto& instance) {
                           return absl::StrCat(std::get<0>(instance.param),
                                               std::get<1>(instance.param) > 0 ? "_dropout" : "");
                         });

// The checkpoint, read back and judged token by token.
TEST(TrainTokens, TheTestMetricsAreMeansOverTokens) {
  const TokenJob tokens(0.1);
  const auto trainer = tokens.Trainer(2, "cpu");
  ExpectSuccess(trainer->Run());
  const engine::Graph model = *engine::BuildGpt2(
      {.layers = 2, .heads = 2, .width = 8, .context = kContext, .vocabulary = kVocabulary});
  const auto backend = engine::MakeBackend("reference_f64").value();
  const auto executable = backend->Compile(model, {}, {}).value();
  const checkpoint::TensorFile file = trainer->Model(kSteps);
  for (size_t i = 0; i < executable->state().size(); ++i) {
    const engine::StateTensor& tensor = executable->state()[i];
    EXPECT_EQ(file.tensors.at(tensor.name).shape, tensor.shape) << tensor.name;
    TY_CHECK_OK(
        executable->WriteState(i, checkpoint::FloatValues(file.tensors.at(tensor.name)).value()));
  }
  const std::vector<uint16_t> text = data::LearnableTokens(kTestTokens, kVocabulary);
  double loss = 0;
  int correct = 0, count = 0;
  for (size_t begin = 0; begin + kContext < text.size(); begin += kContext) {
    const std::vector<float> inputs(text.begin() + static_cast<ptrdiff_t>(begin),
                                    text.begin() + static_cast<ptrdiff_t>(begin + kContext));
    const std::vector<float> logits = executable->Predict(inputs).value();
    for (size_t t = 0; t < kContext; ++t, ++count) {
      const float* at = logits.data() + t * kVocabulary;
      double total = 0;
      for (int64_t v = 0; v < kVocabulary; ++v) total += std::exp(static_cast<double>(at[v]));
      const uint16_t label = text[begin + t + 1];
      loss += std::log(total) - at[label];
      correct += std::max_element(at, at + kVocabulary) == at + label ? 1 : 0;
    }
  }
  ASSERT_EQ(count, 96);
  EXPECT_NEAR(trainer->Metric("test.loss").at(kSteps), loss / count, 1e-5);
  EXPECT_NEAR(trainer->Metric("test.accuracy").at(kSteps), static_cast<double>(correct) / count,
              1e-6);
  EXPECT_NEAR(trainer->Metric("test.perplexity").at(kSteps), std::exp(loss / count), 1e-4);
}

TEST(TrainTokens, TheLossFallsBelowThatOfGuessingByFrequency) {
  TokenJob tokens(0);
  tokens.Write("made/train.bin", data::RawTokens(data::LearnableTokens(4000, kVocabulary)));
  tokens.job.train = R"({"steps": 120, "global_batch": 32, "replicas": 1})";
  tokens.job.more = R"(, "schedule": {"warmup_epochs": 0.5})";
  const auto trainer = tokens.Trainer(1, "cpu");
  ExpectSuccess(trainer->Run(), 120);
  EXPECT_NEAR(trainer->Metric("train.loss").at(1), std::log(kVocabulary), 0.1);
  // One token in five is random, so with ln 11 = 2.4 the best possible loss is around 0.9.
  EXPECT_LT(trainer->Metric("test.loss").at(120), 1.5);
}

TEST(TrainTokens, ATokenOutsideTheVocabularyEndsTheJobWithItsPosition) {
  TokenJob tokens(0);
  std::vector<uint16_t> text = data::LearnableTokens(200, kVocabulary);
  text[17] = 11;
  tokens.Write("made/train.bin", data::RawTokens(text));
  const auto trainer = tokens.Trainer(1, "cpu");
  const run_dir::RankResult result = trainer->Run()[0];
  EXPECT_EQ(result.outcome, Outcome::kUserError);
  EXPECT_EQ(result.reason, "CORRUPT_FILE");
  EXPECT_THAT(result.message,
              HasSubstr("made/train.bin' is corrupt: byte 34: token 11; expected 0 to 10"));
}

TEST(TrainTokens, NetworksAndDataThatDoNotFitAreRefused) {
  TokenJob tokens(0);
  tokens.job.model = R"({"mlp": {}})";
  EXPECT_THAT(tokens.Trainer(1, "cpu")->Run()[0].message, HasSubstr("spec.model: reads no tokens"));
  TokenJob images(0);
  images.job.data = JobText().data;
  EXPECT_THAT(images.Trainer(1, "cpu")->Run()[0].message,
              HasSubstr("has input [6]; dataset 'glyphs' has samples of [1, 28, 28]"));
  TokenJob text(0);
  text.job.data = R"({"dataset": "tinyshakespeare"})";
  text.Write("input.txt", std::string(200, 'a'));
  EXPECT_THAT(text.Trainer(1, "cpu")->Run()[0].message,
              HasSubstr("has 11 different tokens; dataset 'tinyshakespeare' has 65"));
}

}  // namespace
}  // namespace trainyard::trainer
