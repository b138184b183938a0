// Tests networks that a spec spells out, and weights from other sources, through the whole product.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

constexpr char kLayers[] = R"(
model:
  layers:
    stack:
      - {name: conv, conv2d: {channels: 8, padding: 1, stride: 2}}
      - relu
      - {name: more, conv2d: {channels: 8, padding: 1}}
      - {from: [relu1, more], add: {}}
      - relu
      - max_pool
      - flatten
      - {name: fc, linear: {features: 10}}
)";

std::string LayersSpec(const std::string& name, const std::string& extra = "") {
  return absl::StrReplaceAll(SmallSpec(name, 2, 1, 1000, extra),
                             {{"\nmodel: {convnet: {channels: [16, 32]}}\n", kLayers}});
}

TEST(Layers, AnInlineNetworkTrainsAndIsClonedWithAnotherLayer) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(LayersSpec("inline"));
  const v1::Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.DebugString();
  EXPECT_EQ(ended.resolved_spec().model().layers().stack(0).conv2d().kernel(), 3);

  const ProcessResult clone = yard.Cli({"clone", "1", "--set", "model.layers.stack[1]=tanh",
                                        "--set", "model.layers.stack[3].from[0]=tanh1", "--set",
                                        "train.seed=9", "--yes", "-o", "name"});
  ASSERT_EQ(clone.exit_code, 0) << clone.err;
  ASSERT_EQ(yard.WaitForEnd("jobs/2").state(), v1::JOB_STATE_SUCCEEDED);
  const ProcessResult diff = yard.Cli({"diff", "1", "2"});
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  for (const char* path : {"model.layers.stack[1].relu", "model.layers.stack[1].tanh",
                           "model.layers.stack[3].from", "train.seed"}) {
    EXPECT_TRUE(absl::StrContains(diff.out, path)) << path << "\n" << diff.out;
  }

  // The server refuses mistakes that the client does not check.
  v1::CloneJobRequest request;
  request.set_name("jobs/1");
  v1::SpecChange& change = *request.add_changes();
  change.set_path("model.layers.stack[6]");
  change.set_value_json("\"relu\"");
  grpc::ClientContext context;
  v1::CloneJobResponse response;
  const grpc::Status refused = yard.jobs().CloneJob(&context, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(absl::StrContains(refused.error_message(), "an image; put `flatten` before it"))
      << refused.error_message();
}

TEST(Init, AJobStartsWithTheWeightsOfAnother) {
  Yard::Options options;
  TempDir datasets;
  options.dataset_dir = datasets.path();
  Yard yard(std::move(options));
  yard.Start();
  ASSERT_EQ(yard.WaitForEnd(yard.Submit(LayersSpec("first"))).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string out = yard.File("download");
  ASSERT_EQ(yard.Cli({"checkpoints", "get", "last", "-O", out}).exit_code, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    if (entry.path().filename() != "model.safetensors") continue;
    std::filesystem::copy_file(entry.path(), datasets.File("first.safetensors"));
  }
  const std::string init = "init: {checkpoint: first.safetensors}\n";
  const v1::Job next = yard.WaitForEnd(yard.Submit(LayersSpec("next", init)));
  ASSERT_EQ(next.state(), v1::JOB_STATE_SUCCEEDED) << next.DebugString();
  EXPECT_LT(yard.Metrics("jobs/2", "train.loss")[0].value(),
            yard.Metrics("jobs/1", "train.loss")[0].value() - 0.3);

  const std::string wider =
      absl::StrReplaceAll(LayersSpec("wider", init), {{"{features: 10}", "{features: 12}"}});
  const v1::Job failed = yard.WaitForEnd(yard.Submit(wider));
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(absl::StrContains(failed.DebugString(), "write init.skip: [fc.]"))
      << failed.DebugString();
}

}  // namespace
}  // namespace trainyard::testing
