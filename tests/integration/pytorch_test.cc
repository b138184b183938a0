// Strangers' tools take our checkpoints unchanged: PyTorch loads one and computes the same logits.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/dataset.h"
#include "worker/engine/models/models.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kRows = 16;

// The logits that our engine computes from a model.safetensors, with what went in.
void WriteProbe(const std::string& model_path, const std::string& probe_path, bool batch_norm) {
  auto graph = engine::BuildConvnet(
      {.input = {1, 28, 28}, .channels = {16, 32}, .classes = 10, .batch_norm = batch_norm});
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto backend = engine::MakeBackend("cpu");
  ASSERT_TRUE(backend.ok()) << backend.status();
  auto executable =
      (*backend)->Compile(*graph, engine::OptimizerSpec(), {.max_rows = kRows, .threads = 1});
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
  const auto dataset = data::OpenDataset("glyphs", data::Split::kTest,
                                         {.dataset_dir = "", .train_size = 0, .test_size = kRows});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<float> input(kRows * 28 * 28);
  for (int64_t i = 0; i < kRows; ++i) {
    int32_t label = 0;
    const auto pixels = absl::MakeSpan(input).subspan(static_cast<size_t>(i) * 784, 784);
    ASSERT_TRUE((*dataset)->Read(i, pixels, absl::MakeSpan(&label, 1)).ok());
  }
  auto logits = (*executable)->Predict(input);
  ASSERT_TRUE(logits.ok()) << logits.status();
  checkpoint::TensorFile probe;
  probe.tensors["input"] = checkpoint::FloatTensor({kRows, 1, 28, 28}, input.data());
  probe.tensors["logits"] = checkpoint::FloatTensor({kRows, 10}, logits->data());
  ASSERT_TRUE(WriteFileAtomically(probe_path, checkpoint::EncodeSafetensors(probe)).ok());
}

void ExpectEqualLogits(bool batch_norm) {
  TempDir dir;
  Process::Options import;
  import.args = {"/usr/bin/python3", "-c", "import torch"};
  const auto imported = RunProcess(import, dir.path(), kPatience);
  ASSERT_TRUE(imported.ok()) << imported.status();
  if (imported->exit_code != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no torch; scripts/install_deps.sh --peers installs it";
  }
  Yard yard;
  yard.Start();
  std::string spec = SmallSpec("torch", 2, 1, 2000);
  if (batch_norm) {
    const std::string channels = "channels: [16, 32]";
    spec.replace(spec.find(channels), channels.size(), channels + ", batch_norm: true");
  }
  const std::string job = yard.Submit(spec);
  ASSERT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string out = yard.File("download");
  const ProcessResult got = yard.Cli({"checkpoints", "get", "last", "-O", out});
  ASSERT_EQ(got.exit_code, 0) << got.err;
  std::string model;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    if (entry.path().filename() == "model.safetensors") model = entry.path().string();
  }
  ASSERT_FALSE(model.empty());
  ASSERT_NO_FATAL_FAILURE(WriteProbe(model, dir.File("probe.safetensors"), batch_norm));
  Process::Options check;
  check.args = {"/usr/bin/python3", SourcePath("tests/python/check_checkpoint.py"), model,
                dir.File("probe.safetensors")};
  const auto checked = RunProcess(check, dir.path(), kPatience);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->exit_code, 0) << checked->out << checked->err;
}

TEST(PyTorch, LoadsAConvnetAndComputesTheSameLogits) {
  ExpectEqualLogits(/*batch_norm=*/false);
}

TEST(PyTorch, LoadsAConvnetWithBatchNormAndComputesTheSameLogits) {
  ExpectEqualLogits(/*batch_norm=*/true);
}

}  // namespace
}  // namespace trainyard::testing
