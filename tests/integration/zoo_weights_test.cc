// Tests that weights can be exchanged in both directions between the models of the zoo and the
// libraries whose names they bear: the library loads our checkpoint, we load its state_dict by
// `init`, and the logits are equal.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"
#include "worker/trainer/plan/model_setup.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/run/initial_weights.h"
#include "worker/trainer/run/training_state.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kClasses = 10;
// check_zoo.py exits with this code if its library is missing.
constexpr int kNotInstalled = 77;

struct ZooModel {
  const char* library;
  const char* name;  // there
  const char* kind;  // ours
  const char* fields;
  int64_t side;  // of the images

  // GoogleTest shows this.
  friend void PrintTo(const ZooModel& model, std::ostream* out) {
    *out << model.library << " " << model.name;
  }
};

// GoogLeNet and the residual networks take images of any size. The classifier of AlexNet needs
// images of 224 pixels.
constexpr ZooModel kModels[] = {
    {"torchvision", "resnet18", "resnet", R"("depth": 18)", 64},
    {"torchvision", "resnet50", "resnet", R"("depth": 50)", 64},
    {"torchvision", "alexnet", "alexnet", R"("dropout": 0.5)", 224},
    {"torchvision", "vgg11_bn", "vgg", R"("depth": 11, "batch_norm": true)", 32},
    {"torchvision", "googlenet", "googlenet", R"("stem": "STEM_IMAGENET")", 96},
    {"timm", "resnet18", "resnet", R"("depth": 18)", 64},
    {"timm", "resnet50", "resnet", R"("depth": 50)", 64},
};

class ZooWeightsTest : public ::testing::TestWithParam<ZooModel> {
 protected:
  std::unique_ptr<engine::Executable> Compile() {
    const std::string json = absl::StrCat(
        R"({"model": {")", GetParam().kind, R"(": {"classes": )", kClasses, R"(, "input": [3, )",
        GetParam().side, ", ", GetParam().side, "], ", GetParam().fields,
        R"(}}, "data": {"dataset": "images"}, "train": {"steps": 1, "global_batch": 2},)"
        R"( "optimizer": {"sgd": {"lr": 0.1}}})");
    const auto spec = trainer::ParseSpec(json);
    EXPECT_TRUE(spec.ok()) << spec.status();
    auto graph = trainer::BuildModel(spec->model());
    EXPECT_TRUE(graph.ok()) << graph.status();
    auto executable = engine::MakeBackend("cpu").value()->Compile(
        *graph, engine::OptimizerSpec(), {.max_rows = kRows, .threads = 2});
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *std::move(executable);
  }

  std::vector<float> Input() const {
    const auto row = static_cast<size_t>(3 * GetParam().side * GetParam().side);
    std::vector<float> input(static_cast<size_t>(kRows) * row);
    for (size_t i = 0; i < input.size(); ++i) {
      const float frequency = i < row ? 0.37f : 0.071f;
      input[i] = std::sin(static_cast<float>(i % row) * frequency);
    }
    return input;
  }

  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomically(dir_.File(name), bytes).ok());
  }

  TempDir dir_;
};

// Draws weights with which the outputs of layers keep their size, however deep the layers are.
// Tensors that start as all ones or zeros are changed, so that a mix-up of two such tensors is
// seen.
void Randomize(engine::Executable& executable) {
  std::mt19937 random(3);
  for (size_t i = 0; i < executable.state().size(); ++i) {
    const engine::StateTensor& tensor = executable.state()[i];
    const int64_t count = engine::ElementCount(tensor.shape);
    std::vector<float> values(static_cast<size_t>(count));
    ASSERT_TRUE(executable.ReadState(i, absl::MakeSpan(values)).ok());
    const bool is_weight = tensor.shape.size() > 1;
    const double fan_in = static_cast<double>(count) / static_cast<double>(tensor.shape[0]);
    const float scale = is_weight ? static_cast<float>(std::sqrt(6 / fan_in)) : 0.2f;
    for (float& value : values) {
      const float drawn = static_cast<float>(random()) * 0x1p-31f - 1;
      value = (is_weight ? 0 : value) + scale * drawn;
    }
    ASSERT_TRUE(executable.WriteState(i, values).ok());
  }
}

TEST_P(ZooWeightsTest, GoBothWays) {
  const std::vector<float> input = Input();
  const auto ours = Compile();
  ASSERT_TRUE(engine::InitializeParameters(3, *ours).ok());
  ASSERT_NO_FATAL_FAILURE(Randomize(*ours));
  const auto snapshot = trainer::TakeSnapshot(*ours, 0, 0, {});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  for (const checkpoint::CheckpointFile& file : trainer::EncodeSnapshot(*snapshot)) {
    if (file.name == "model.safetensors") Write("ours.safetensors", file.content);
  }
  const auto logits = ours->Predict(input);
  ASSERT_TRUE(logits.ok()) << logits.status();
  checkpoint::TensorFile probe;
  probe.tensors["input"] =
      checkpoint::FloatTensor({kRows, 3, GetParam().side, GetParam().side}, input.data());
  probe.tensors["logits"] = checkpoint::FloatTensor({kRows, kClasses}, logits->data());
  Write("probe.safetensors", checkpoint::EncodeSafetensors(probe));

  Process::Options check;
  check.args = {"/usr/bin/python3", SourcePath("tests/python/check_zoo.py"), GetParam().library,
                GetParam().name, dir_.path()};
  const auto checked = RunProcess(check, dir_.path(), kPatience);
  ASSERT_TRUE(checked.ok()) << checked.status();
  if (checked->exit_code == kNotInstalled) GTEST_SKIP() << checked->out;
  ASSERT_EQ(checked->exit_code, 0) << checked->out << checked->err;
  std::cout << checked->out;

  const auto theirs = Compile();
  v1::InitSpec init;
  init.set_checkpoint("theirs.safetensors");
  const auto loaded = trainer::LoadInitialWeights(init, {.datasets = dir_.path()}, *theirs);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto got = theirs->Predict(input);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto answer = checkpoint::ReadSafetensors(dir_.File("answer.safetensors"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto expected = checkpoint::FloatValues(answer->tensors.at("logits"));
  ASSERT_EQ(got->size(), expected->size());
  // The difference between two samples shows the effect of the layers, and not that of the last
  // bias.
  float size = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    size = std::max(size, std::abs((*expected)[i] - (*expected)[i + kClasses]));
  }
  for (size_t i = 0; i < got->size(); ++i) {
    EXPECT_NEAR((*got)[i], (*expected)[i], 1e-4f * size) << "logit " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ZooWeightsTest, ::testing::ValuesIn(kModels),
                         [](const auto& instance) {
                           return absl::StrCat(instance.param.library, "_", instance.param.name);
                         });

}  // namespace
}  // namespace trainyard::testing
