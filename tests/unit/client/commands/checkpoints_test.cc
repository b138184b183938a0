// Tests the checkpoint commands: listing, downloads that break, and verification.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    server_.AddJob("small", v1::JOB_STATE_SUCCEEDED);
    server_.AddCheckpoint("jobs/1", 600, {{"model.safetensors", model_}, {"state.json", "{}"}});
  }
  CommandResult Get() { return runner_.Run({"checkpoints", "get", "last", "-O", out_}); }
  std::string Content(const std::string& name) {
    return ReadFile(JoinPath(out_, name)).value_or("(absent)");
  }

  const std::string model_ = std::string(4500, 'w');
  FakeServer server_;
  CommandRunner runner_{server_.address()};
  const std::string out_ = runner_.home.File("out");
};

TEST_F(Checkpoints, AreListed) {
  EXPECT_THAT(runner_.Run({"checkpoints", "ls", "last"}).out,
              HasSubstr("jobs/1/checkpoints/600   600        1  4.4 KiB"));
  EXPECT_EQ(runner_.Run({"checkpoints", "ls", "1", "-o", "name"}).out, "jobs/1/checkpoints/600\n");
}

TEST_F(Checkpoints, AreDownloadedWithAManifest) {
  const CommandResult result = Get();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, out_ + "\n");
  EXPECT_EQ(Content("model.safetensors"), model_);
  EXPECT_EQ(Content("state.json"), "{}");
  // The hashes of both contents by XXH3 with 128 bits.
  EXPECT_THAT(Content("MANIFEST"),
              HasSubstr("{\"format\": 1, \"step\": 600, \"files\": [\n  {\"name\": "
                        "\"model.safetensors\", \"size\": 4500, \"hash\": \"xxh3-128:"));
}

TEST_F(Checkpoints, ADownloadGoesOnWhereItStopped) {
  ASSERT_TRUE(MakeDirectories(out_).ok());
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(out_, "model.safetensors.part"), model_.substr(0, 1234)).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(out_, "state.json"), "{}").ok());
  EXPECT_EQ(Get().exit_code, 0);
  EXPECT_EQ(Content("model.safetensors"), model_);
  EXPECT_EQ(server_.downloads(), 1);
  EXPECT_EQ(server_.last_download_offset(), 1234);
}

TEST_F(Checkpoints, ABegunFileOfSomethingElseIsFetchedAnew) {
  ASSERT_TRUE(MakeDirectories(out_).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(out_, "model.safetensors.part"), "other").ok());
  EXPECT_EQ(Get().exit_code, 0);
  EXPECT_EQ(Content("model.safetensors"), model_);
}

TEST_F(Checkpoints, DamagedBytesAreNeverTakenForACheckpoint) {
  server_.DamageFile("jobs/1/checkpoints/600", "model.safetensors");
  const CommandResult result = Get();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("checkpoint 'jobs/1/checkpoints/600' is damaged on the server: "
                                    "model.safetensors has another hash; there is no older one"));
  EXPECT_EQ(Content("model.safetensors"), "(absent)");
  EXPECT_EQ(Content("MANIFEST"), "(absent)");
}

TEST_F(Checkpoints, OlderOnesAreNamedInPlaceOfADamagedOne) {
  server_.AddCheckpoint("jobs/1", 700, {{"state.json", "7"}});
  server_.AddCheckpoint("jobs/1", 800, {{"state.json", "8"}});
  server_.AddCheckpoint("jobs/1", 900, {{"state.json", "9"}});
  server_.DamageFile("jobs/1/checkpoints/700", "state.json");
  server_.DamageFile("jobs/1/checkpoints/800", "state.json");
  EXPECT_EQ(runner_.Run({"checkpoints", "get", "1/700", "-O", out_}).exit_code, 1);
  const CommandResult result = runner_.Run({"checkpoints", "get", "1/800", "-O", out_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("older ones that are whole: 1/600; "
                                    "`trainyard checkpoints get 1/600`"));
  const std::string table = runner_.Run({"checkpoints", "ls", "1"}).out;
  EXPECT_THAT(table, HasSubstr("BEST  DAMAGE\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("checkpoints/600 .*- +-\n"));
  EXPECT_THAT(table, HasSubstr("state.json has another hash\n"));
}

TEST_F(Checkpoints, TheListShowsWhatIsInTheBucket) {
  server_.AddCheckpoint("jobs/1", 700, {{"state.json", "7"}});
  server_.AddCheckpoint("jobs/1", 800, {{"state.json", "8"}});
  EXPECT_THAT(runner_.Run({"checkpoints", "ls", "1"}).out, Not(HasSubstr("COPY")));
  server_.SetCopy("jobs/1/checkpoints/600", "s3://lab/yard/checkpoints/1/600");
  server_.SetCopy("jobs/1/checkpoints/700", "", "the bucket is away");
  const CommandResult listed = runner_.Run({"checkpoints", "ls", "1"});
  EXPECT_THAT(listed.out, HasSubstr("COPY"));
  EXPECT_THAT(listed.out, HasSubstr(" s3://lab/yard/checkpoints/1/600\n"));
  EXPECT_THAT(listed.out, HasSubstr(" failed\n"));
  EXPECT_THAT(listed.out, HasSubstr(" waiting\n"));
  EXPECT_THAT(listed.err, HasSubstr("jobs/1/checkpoints/700 is not in the bucket: the bucket is "
                                    "away; the server tries again"));
  const std::string json = runner_.Run({"checkpoints", "ls", "1", "-o", "json"}).out;
  EXPECT_THAT(json, HasSubstr("s3://lab/yard/checkpoints/1/600"));
  EXPECT_THAT(json, HasSubstr("the bucket is away"));
}

TEST_F(Checkpoints, OneThatIsMarkedIsVerifiedAgainBeforeItIsRefused) {
  server_.DamageFile("jobs/1/checkpoints/600", "model.safetensors");
  ASSERT_EQ(Get().exit_code, 1);
  ASSERT_EQ(Get().exit_code, 1);
  const int downloads = server_.downloads();
  EXPECT_EQ(downloads, 2) << "what is marked is not downloaded";
  server_.DamageFile("jobs/1/checkpoints/600", "model.safetensors");  // the same bit once more
  const CommandResult result = Get();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Content("model.safetensors"), model_);
}

TEST_F(Checkpoints, AFolderWithAnotherCheckpointIsLeftAlone) {
  EXPECT_EQ(Get().exit_code, 0);
  EXPECT_EQ(Get().exit_code, 0);
  EXPECT_EQ(server_.downloads(), 2);  // nothing was sent twice
  server_.AddCheckpoint("jobs/1", 900, {{"model.safetensors", "new"}});
  const CommandResult result = Get();
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_EQ(Content("model.safetensors"), model_);
}

TEST_F(Checkpoints, AFileNameThatIsAPathIsRefused) {
  server_.AddCheckpoint("jobs/1", 700, {{"../escape", "x"}});
  const CommandResult result = Get();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("is not a plain file name"));
  EXPECT_FALSE(FileExists(runner_.home.File("escape")));
}

TEST_F(Checkpoints, TheBestIsMarkedAndHasAName) {
  server_.AddCheckpoint("jobs/1", 700, {{"state.json", "{}"}}, /*is_best=*/true);
  server_.AddCheckpoint("jobs/1", 800, {{"state.json", "{}"}});
  const std::string table = runner_.Run({"checkpoints", "ls", "last"}).out;
  EXPECT_THAT(table, ::testing::ContainsRegex("checkpoints/700 .*\\*\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("checkpoints/800 .*-\n"));
  const CommandResult best = runner_.Run({"checkpoints", "get", "1", "best", "-O", out_});
  EXPECT_EQ(best.exit_code, 0) << best.err;
  EXPECT_THAT(best.err, HasSubstr("jobs/1/checkpoints/700"));
}

// This test runs the program that does the work.
class VerifiedCheckpoints : public Checkpoints {
 protected:
  VerifiedCheckpoints() {
    runner_.surroundings.binary_dir = testing::BinaryPath("");
    server_.AddCheckpoint("jobs/1", 900,
                          {{"model.safetensors", model_}, {"state.json", "{\"step\": 900}"}});
  }
};

TEST_F(VerifiedCheckpoints, OfAJobAreDownloadedForIt) {
  const CommandResult result = runner_.Run({"checkpoints", "verify", "last"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("checkpoint of step 900\n"));
  EXPECT_THAT(result.out, HasSubstr("files only: state.json records no evaluation of this step\n"
                                    "all 2 are as recorded\n"));
  const CommandResult json = runner_.Run({"checkpoints", "verify", "1/900", "-o", "json"});
  EXPECT_THAT(json.out, HasSubstr("\"what\": \"model.safetensors\""));
}

TEST_F(VerifiedCheckpoints, AFlippedBitIsNamedWithFileAndHashes) {
  ASSERT_EQ(Get().exit_code, 0);
  std::string damaged = model_;
  damaged[1000] = static_cast<char>(damaged[1000] ^ 4);
  ASSERT_TRUE(WriteFileAtomically(JoinPath(out_, "model.safetensors"), damaged).ok());
  const CommandResult result = runner_.Run({"checkpoints", "verify", out_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              ::testing::ContainsRegex("model.safetensors  xxh3-128:[^ ]*  xxh3-128:[^ ]*  NO\n"));
  EXPECT_THAT(result.out, HasSubstr("1 of 2 differ: model.safetensors\n"));
}

TEST_F(VerifiedCheckpoints, AFolderThatIsNoneSaysWhatIsMissing) {
  const CommandResult result = runner_.Run({"checkpoints", "verify", runner_.home.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("MANIFEST' is corrupt: it is missing"));
}

TEST_F(Checkpoints, OneThatIsNotThereIsNotFound) {
  EXPECT_EQ(runner_.Run({"checkpoints", "get", "1/5"}).exit_code, 3);
}

}  // namespace
}  // namespace trainyard::testing
