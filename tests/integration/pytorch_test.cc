// Tests that other tools read our checkpoints unchanged: PyTorch loads one and computes the same
// logits.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "tests/unit/worker/data/token_files.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/open_dataset.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kRows = 16;

// The network that is trained, and the input with which it is compared.
struct Case {
  std::string spec;
  engine::Graph graph;
  std::vector<float> input;  // kRows
  int64_t heads = 0;         // the number of attention heads, which the checkpoint does not contain
};

// Writes the logits that our engine computes from a model.safetensors, and their inputs.
void WriteProbe(const std::string& model_path, const std::string& probe_path, const Case& c) {
  auto backend = engine::MakeBackend("cpu");
  ASSERT_TRUE(backend.ok()) << backend.status();
  auto executable =
      (*backend)->Compile(c.graph, engine::OptimizerSpec(), {.max_rows = kRows, .threads = 1});
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto model = checkpoint::ReadSafetensors(model_path);
  ASSERT_TRUE(model.ok()) << model.status();
  for (size_t i = 0; i < (*executable)->state().size(); ++i) {
    const engine::StateTensor& tensor = (*executable)->state()[i];
    if (tensor.kind == engine::StateTensor::Kind::kOptimizerSlot) continue;
    ASSERT_EQ(model->tensors.count(tensor.name), 1u) << tensor.name;
    auto values = checkpoint::FloatValues(model->tensors.at(tensor.name));
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_TRUE((*executable)->WriteState(i, *values).ok());
  }
  auto logits = (*executable)->Predict(c.input);
  ASSERT_TRUE(logits.ok()) << logits.status();
  const auto with_rows = [](engine::Shape shape) {
    shape.insert(shape.begin(), kRows);
    return shape;
  };
  checkpoint::TensorFile probe;
  probe.tensors["input"] =
      checkpoint::FloatTensor(with_rows(c.graph.input_shape()), c.input.data());
  probe.tensors["logits"] =
      checkpoint::FloatTensor(with_rows(c.graph.value(c.graph.logits).shape), logits->data());
  const auto heads = static_cast<float>(c.heads);
  if (c.heads > 0) probe.tensors["heads"] = checkpoint::FloatTensor({1}, &heads);
  ASSERT_TRUE(WriteFileAtomically(probe_path, checkpoint::EncodeSafetensors(probe)).ok());
}

void ExpectEqualLogits(const Case& c, const std::string& dataset_dir = "") {
  TempDir dir;
  Process::Options import;
  import.args = {"/usr/bin/python3", "-c", "import torch"};
  const auto imported = RunProcess(import, dir.path(), kPatience);
  ASSERT_TRUE(imported.ok()) << imported.status();
  if (imported->exit_code != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no torch; scripts/install_deps.sh --peers installs it";
  }
  Yard::Options options;
  options.dataset_dir = dataset_dir;
  Yard yard(options);
  yard.Start();
  const std::string job = yard.Submit(c.spec);
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string out = yard.File("download");
  const ProcessResult got = yard.Cli({"checkpoints", "get", "last", "-O", out});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  std::string model;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    if (entry.path().filename() == "model.safetensors") model = entry.path().string();
  }
  ASSERT_FALSE(model.empty());
  ASSERT_NO_FATAL_FAILURE(WriteProbe(model, dir.File("probe.safetensors"), c));
  Process::Options check;
  check.args = {"/usr/bin/python3", SourcePath("tests/python/check_checkpoint.py"), model,
                dir.File("probe.safetensors")};
  const auto checked = RunProcess(check, dir.path(), kPatience);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->exit_code, 0) << checked->out << checked->err;
}

Case Convnet(bool batch_norm) {
  Case c;
  c.spec = SmallSpec("torch", 2, 1, 2000);
  if (batch_norm) {
    const std::string channels = "channels: [16, 32]";
    c.spec.replace(c.spec.find(channels), channels.size(), channels + ", batch_norm: true");
  }
  c.graph =
      engine::BuildConvnet(
          {.input = {1, 28, 28}, .channels = {16, 32}, .classes = 10, .batch_norm = batch_norm})
          .value();
  const auto dataset = data::OpenDataset("glyphs", data::Split::kTest,
                                         {.dataset_dir = "", .train_size = 0, .test_size = kRows})
                           .value();
  c.input.resize(kRows * 28 * 28);
  for (int64_t i = 0; i < kRows; ++i) {
    int32_t label = 0;
    const auto pixels = absl::MakeSpan(c.input).subspan(static_cast<size_t>(i) * 784, 784);
    EXPECT_TRUE(dataset->Read(i, pixels, absl::MakeSpan(&label, 1)).ok());
  }
  return c;
}

TEST(PyTorch, LoadsAConvnetAndComputesTheSameLogits) {
  ExpectEqualLogits(Convnet(/*batch_norm=*/false));
}

TEST(PyTorch, LoadsAConvnetWithBatchNormAndComputesTheSameLogits) {
  ExpectEqualLogits(Convnet(/*batch_norm=*/true));
}

TEST(PyTorch, LoadsAGpt2AndComputesTheSameLogits) {
  constexpr uint16_t kVocabulary = 37;
  const TempDir text;
  ASSERT_TRUE(MakeDirectories(text.File("made")).ok());
  const std::vector<uint16_t> tokens = data::LearnableTokens(2000, kVocabulary);
  text.Write("made/train.bin", data::HeadedTokens(tokens));
  text.Write("made/val.bin", data::RawTokens(data::LearnableTokens(200, kVocabulary)));
  Case c;
  c.spec = R"(name: text
model: {gpt2: {layers: 3, heads: 4, width: 32, context: 24, vocabulary: 37}}
data: {dataset: tokens, path: made}
train: {epochs: 8, global_batch: 16}
optimizer: {adamw: {lr: 0.01}}
devices: 2
)";
  c.graph = engine::BuildGpt2(
                {.layers = 3, .heads = 4, .width = 32, .context = 24, .vocabulary = kVocabulary})
                .value();
  c.input.assign(tokens.begin(), tokens.begin() + kRows * 24);
  c.heads = 4;
  ExpectEqualLogits(c, text.path());
}

}  // namespace
}  // namespace trainyard::testing
