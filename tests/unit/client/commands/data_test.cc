// Tests `data ls`, `verify` and `fetch`, together with the programs that do the work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_join.h"
#include "client/commands/data_sources.h"
#include "client/commands/fetch_progress.h"
#include "common/base/files.h"
#include "common/datasets.h"
#include "nlohmann/json.hpp"
#include "tests/testing/manual_clock.h"
#include "tests/testing/paths.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::commands {
namespace {

using testing::CommandResult;
using testing::CommandRunner;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

class DataTest : public ::testing::Test {
 protected:
  DataTest() { runner_.surroundings.binary_dir = testing::BinaryPath(""); }
  CommandResult Run(std::vector<std::string> args) {
    args.insert(args.begin(), "data");
    args.insert(args.end(), {"--dataset_dir", folder_.path()});
    return runner_.Run(args);
  }
  void WriteCifar(const std::string& name, size_t records, char label) {
    ASSERT_TRUE(MakeDirectories(folder_.File("cifar100")).ok());
    folder_.Write("cifar100/" + name, std::string(records * 3074, label));
  }

  const testing::TempDir folder_;
  CommandRunner runner_{"unix:/nobody"};
};

TEST_F(DataTest, LsShowsWhatLiesThere) {
  WriteCifar("train.bin", 1200, '\x07');
  const CommandResult table = Run({"ls"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("DATASET   SPLIT  SAMPLES  CLASSES  SHAPE        DIGEST\n"
                                   "cifar100  train    1,200      100  3 x 32 x 32  xxh3-128:"));
  const CommandResult json = Run({"ls", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)[0]["samples"], 1200);
  EXPECT_EQ(Run({"ls", "-o", "name"}).out, "cifar100\n");
}

TEST_F(DataTest, LsWithoutAFolderShowsTheWorkersDataSets) {
  testing::FakeServer server;
  CommandRunner runner{server.address()};
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  v1::DatasetSplit& split = *worker.mutable_datasets()->add_splits();
  split.set_dataset("images");
  split.set_path("pets");
  split.set_split("train");
  split.set_samples(1200);
  split.set_classes(37);
  split.set_shape("3 x any x any");
  split.set_digest("xxh3-128:12");
  server.AddWorker(worker);
  worker.set_name("workers/old");
  worker.clear_datasets();
  server.AddWorker(worker);
  const CommandResult table = runner.Run({"data", "ls"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(
      table.out,
      HasSubstr("WORKER  DATASET      SPLIT  SAMPLES  CLASSES  SHAPE          DIGEST\n"
                "lab-1   images:pets  train    1,200       37  3 x any x any  xxh3-128:12"));
  EXPECT_THAT(table.err, HasSubstr("worker old has not told its data sets"));
  const CommandResult json = runner.Run({"data", "ls", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)[0]["worker"], "lab-1");
}

TEST_F(DataTest, LsOfAnEmptyFolderSaysWhatToDo) {
  const CommandResult result = Run({"ls"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("`trainyard data fetch`"));
}

TEST_F(DataTest, VerifyFailsWithFilePositionAndValue) {
  WriteCifar("train.bin", 3, '\x07');
  WriteCifar("test.bin", 1, '\x07');
  EXPECT_EQ(Run({"verify"}).exit_code, 0);
  WriteCifar("test.bin", 1, '\x65');
  const CommandResult result = Run({"verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cifar100 test: cannot be opened"));
  EXPECT_THAT(result.err, HasSubstr("test.bin' is corrupt: byte 1: label 101; expected 0 to 99"));
}

TEST_F(DataTest, VerifyFailsIfASplitIsMissing) {
  WriteCifar("train.bin", 3, '\x07');
  const CommandResult result = Run({"verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("cifar100  train        3"));
  EXPECT_THAT(result.err, HasSubstr("cifar100 test: cannot be opened\n"
                                    "  dataset 'cifar100' was not found: looked for "));
  EXPECT_THAT(result.err, HasSubstr("cifar100/test.bin"));
}

TEST_F(DataTest, FetchRefusesWrongBytesAndUnknownNames) {
  const testing::TempDir mirror;
  mirror.Write("cifar-10-binary.tar.gz", "not the archive");
  const CommandResult wrong = Run({"fetch", "cifar10", "--mirror", mirror.path()});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("expected c32a1d4ab5d03f1284b67883e8d87530"));
  EXPECT_FALSE(FileExists(folder_.File("cifar10/cifar-10-binary.tar.gz")));
  const CommandResult unknown = Run({"fetch", "imagenet"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("those that can are cifar10, cifar100, fashion-mnist, mnist"));
}

TEST_F(DataTest, FetchedTextIsListedAsTokens) {
  const auto mirror = testing::DataPath("tinyshakespeare");
  if (!mirror) GTEST_SKIP() << testing::MissingData("tinyshakespeare");
  const CommandResult fetched = Run({"fetch", "tinyshakespeare", "--mirror", *mirror});
  EXPECT_EQ(fetched.exit_code, 0) << fetched.err;
  const CommandResult verified = Run({"verify"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("tinyshakespeare  train  1,003,853       65  any"));
  EXPECT_THAT(verified.out, HasSubstr("tinyshakespeare  test     111,539       65  any"));
}

TEST_F(DataTest, FetchDrawsABarOnATerminal) {
  const testing::TempDir mirror;
  mirror.Write("cifar-10-binary.tar.gz", "not the archive");
  runner_.terminal.err_is_terminal = true;
  const CommandResult result = Run({"fetch", "cifar10", "--mirror", mirror.path()});
  EXPECT_THAT(result.err, HasSubstr("\x1b[G"
                                    "cifar-10-binary.tar.gz [########################] 15 B/15 B"));
  EXPECT_THAT(result.err, HasSubstr("\x1b[G\x1b[Kerror:")) << "the bar is taken away";
  EXPECT_EQ(Run({"fetch", "cifar10", "--mirror", mirror.path(), "--quiet"}).err.find("15 B"),
            std::string::npos);
}

TEST(FetchProgress, WithoutATerminalALineComesEveryTenSeconds) {
  const GlobalOptions options;
  const Surroundings surroundings;
  const output::Terminal terminal;
  std::ostringstream out, err;
  std::istringstream in;
  testing::ManualClock clock;
  link::Interrupt interrupt;
  const Context context = {options, surroundings, terminal,     out,       err, in,
                           false,   clock,        *Rng::Real(), interrupt, out};
  FetchProgress progress(context, "a.gz");
  progress.OnOutput("progress 1048576 0\nprog");
  clock.Advance(absl::Seconds(5));
  progress.OnOutput("ress 6291456 104857600\n");
  EXPECT_EQ(err.str(), "");
  clock.Advance(absl::Seconds(5));
  progress.OnOutput("progress 11534336 104857600\nprogress 11534337 104857600\n");
  EXPECT_EQ(err.str(), "a.gz  11 MiB/100 MiB  11%  1.0 MiB/s  eta 1m 29s\n");
  progress.OnOutput("fetched\n");
  EXPECT_EQ(progress.verdict(), "fetched");
}

TEST(DataSources, AMirrorTakesThePlaceOfThePublisher) {
  const DataSource& source = *FindDataSource("cifar100");
  const SourceFile& file = source.files[0];
  EXPECT_EQ(SourceUrl(source, file, ""),
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz");
  EXPECT_EQ(SourceUrl(source, file, "http://lab/data/"), "http://lab/data/cifar-100-binary.tar.gz");
  EXPECT_EQ(SourceUrl(source, file, "/srv/data"), "file:///srv/data/cifar-100-binary.tar.gz");
  for (const DataSource& known : DataSources()) {
    for (const SourceFile& each : known.files) EXPECT_EQ(each.md5.size(), 32U) << each.name;
  }
}

TEST(DataSources, EveryPublishedDataSetCanBeFetched) {
  std::vector<absl::string_view> published;
  for (const datasets::Facts& facts : datasets::All()) {
    if (facts.source == datasets::Facts::Source::kPublished) published.push_back(facts.name);
  }
  std::vector<absl::string_view> known;
  for (const DataSource& source : DataSources()) known.push_back(source.dataset);
  EXPECT_THAT(known, UnorderedElementsAreArray(published));
  EXPECT_THAT(CommandRunner("unix:/nobody").Run({"data", "fetch", "--help"}).out,
              HasSubstr(absl::StrJoin(known, ", ")));
}

}  // namespace
}  // namespace trainyard::commands
