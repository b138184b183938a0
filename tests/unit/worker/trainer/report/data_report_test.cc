// Tests the report that --data makes of a folder of data sets.
#include "worker/trainer/report/data_report.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/jpeg_files.h"
#include "tests/unit/worker/data/token_files.h"

namespace trainyard::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataReportTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    TY_CHECK_OK(MakeDirectories(folder_.File(name.substr(0, name.rfind('/')))));
    folder_.Write(name, content);
  }
  nlohmann::json Splits(bool verifies) const {
    const auto report = ReportData(folder_.path(), verifies);
    EXPECT_TRUE(report.ok()) << report.status();
    return nlohmann::json::parse(*report)["splits"];
  }

  const testing::TempDir folder_;
};

TEST_F(DataReportTest, AnEmptyFolderHasNoSplits) {
  EXPECT_TRUE(Splits(false).empty());
  EXPECT_FALSE(ReportData(folder_.File("absent"), false).ok());
}

TEST_F(DataReportTest, TellsWhatThereIs) {
  Write("cifar100/test.bin", std::string(size_t{3} * 3074, '\x05'));
  Write("pets/train/cat/1.jpg", data::SlopeJpeg(30, 20));
  Write("pets/train/dog/1.jpg", data::SlopeJpeg(30, 20));
  const nlohmann::json splits = Splits(false);
  ASSERT_EQ(splits.size(), 2U);
  EXPECT_EQ(splits[0]["dataset"], "cifar100");
  EXPECT_EQ(splits[0]["split"], "test");
  EXPECT_EQ(splits[0]["samples"], 3);
  EXPECT_EQ(splits[0]["classes"], 100);
  EXPECT_EQ(splits[0]["shape"], "3 x 32 x 32");
  EXPECT_THAT(splits[0]["digest"].get<std::string>(), HasSubstr("xxh3-128:"));
  EXPECT_EQ(splits[1]["dataset"], "images");
  EXPECT_EQ(splits[1]["path"], "pets");
  EXPECT_EQ(splits[1]["split"], "train");
  EXPECT_EQ(splits[1]["classes"], 2);
  EXPECT_EQ(splits[1]["shape"], "3 x any x any");
}

TEST_F(DataReportTest, TellsOfTokensOneByOne) {
  Write("webtext/train.bin", data::RawTokens({1, 2, 3, 60000}));
  Write("webtext/val.bin", data::HeadedTokens({1, 2}));
  Write("cifar100/train.bin", std::string(3074, '\x05'));  // no tokens
  Write("tinyshakespeare/input.txt", std::string(99, 'a') + "#");
  const nlohmann::json splits = Splits(false);
  ASSERT_EQ(splits.size(), 5U);
  EXPECT_EQ(splits[0]["dataset"], "cifar100");
  EXPECT_EQ(splits[1]["dataset"], "tinyshakespeare");
  EXPECT_EQ(splits[1]["samples"], 89);
  EXPECT_EQ(splits[1]["classes"], 65);
  EXPECT_EQ(splits[3]["dataset"], "tokens");
  EXPECT_EQ(splits[3]["path"], "webtext");
  EXPECT_EQ(splits[3]["split"], "train");
  EXPECT_EQ(splits[3]["samples"], 3) << "each with its successor";
  EXPECT_EQ(splits[3]["classes"], 65536);
  EXPECT_EQ(splits[3]["shape"], "any");
  EXPECT_EQ(splits[4]["split"], "test");
  EXPECT_EQ(splits[4]["samples"], 1);
}

TEST_F(DataReportTest, VerifyReadsEveryToken) {
  Write("tinyshakespeare/input.txt", std::string(99, 'a') + "#");
  const nlohmann::json splits = Splits(true);
  ASSERT_EQ(splits.size(), 2U);
  EXPECT_EQ(splits[0]["corrupt"], 0);
  EXPECT_EQ(splits[1]["corrupt"], 1);
  EXPECT_THAT(splits[1]["errors"][0].get<std::string>(), HasSubstr("byte 99: character 35"));
}

// Returns "name split: first error" of each split that has one.
std::vector<std::string> Errors(const nlohmann::json& splits) {
  std::vector<std::string> errors;
  for (const auto& split : splits) {
    if (split["errors"].empty()) continue;
    errors.push_back(absl::StrCat(
        split["dataset"].get<std::string>(), ":", split["path"].get<std::string>(), " ",
        split["split"].get<std::string>(), ": ", split["errors"][0].get<std::string>()));
  }
  return errors;
}

TEST_F(DataReportTest, VerifyTellsWhichSplitIsMissing) {
  Write("cats/train/cat/1.jpg", data::SlopeJpeg(30, 20));
  Write("dogs/val/dog/1.jpg", data::SlopeJpeg(30, 20));
  Write("mnist/t10k-images-idx3-ubyte.gz", "no labels beside it");
  Write("other/test/main.cc", "no split of images");
  Write("text/train.bin", data::RawTokens({1, 2, 3}));
  const nlohmann::json splits = Splits(true);
  EXPECT_THAT(
      Errors(splits),
      ElementsAre(
          HasSubstr("mnist: train: dataset 'mnist' was not found: looked for "),
          HasSubstr("mnist: test: dataset 'mnist' is incomplete: "),
          AllOf(HasSubstr("images:cats test: "),
                HasSubstr(absl::StrCat("looked for ", folder_.File("cats/test"), ", ",
                                       folder_.File("cats/val"), "; put it there"))),
          AllOf(HasSubstr("images:dogs train: "),
                HasSubstr(absl::StrCat("looked for ", folder_.File("dogs/train"), "; put"))),
          AllOf(HasSubstr("tokens:text test: "),
                HasSubstr(absl::StrCat("looked for ", folder_.File("text/val.bin"), "; put")))));
  EXPECT_EQ(splits.size(), 7U) << "with cats and text, whose other split is there";
}

TEST_F(DataReportTest, ABatchThatIsMissingIsTold) {
  for (const int batch : {2, 3, 5}) {
    Write(absl::StrCat("cifar10/data_batch_", batch, ".bin"), std::string(3073, '\x05'));
  }
  Write("cifar10/test_batch.bin", std::string(3073, '\x05'));
  for (const bool verifies : {false, true}) {
    EXPECT_THAT(Errors(Splits(verifies)),
                ElementsAre(HasSubstr("has 3 of the 5 files of the split, and lacks "
                                      "data_batch_1.bin, data_batch_4.bin; put the rest")));
  }
}

TEST_F(DataReportTest, VerifyFindsJpegsWhoseDecoderLostItsPlace) {
  const std::string whole = data::SlopeJpeg(30, 20);
  std::string damaged = whole;
  damaged.insert(whole.size() - 2, whole.substr(whole.size() - 40, 30));
  Write("pets/train/cat/1.jpg", damaged);
  Write("pets/test/cat/1.jpg", whole);
  EXPECT_THAT(Errors(Splits(true)), ElementsAre(AllOf(HasSubstr("pets/train/cat/1.jpg' is corrupt"),
                                                      HasSubstr("extraneous bytes"))));
}

TEST_F(DataReportTest, VerifyFindsWhatListingPassesOver) {
  // The image is damaged in its last rows, which no centre crop reads.
  std::string damaged = data::SlopeJpeg(30, 400, {.quality = 100});
  damaged[damaged.size() - 30] = '\xff';
  damaged[damaged.size() - 29] = '\xd9';
  Write("pets/train/cat/1.jpg", data::SlopeJpeg(30, 20));
  Write("pets/train/cat/2.jpg", damaged);
  EXPECT_TRUE(Splits(false)[0]["errors"].empty());
  const nlohmann::json split = Splits(true)[0];
  EXPECT_EQ(split["samples"], 2);
  EXPECT_EQ(split["corrupt"], 1);
  ASSERT_EQ(split["errors"].size(), 1U);
  EXPECT_THAT(split["errors"][0].get<std::string>(),
              HasSubstr("pets/train/cat/2.jpg' is corrupt: byte "));
}

TEST_F(DataReportTest, ASplitThatCannotBeOpenedHasItsError) {
  Write("cifar100/train.bin", std::string(100, '\0'));
  const nlohmann::json split = Splits(false)[0];
  EXPECT_FALSE(split.contains("samples"));
  EXPECT_THAT(split["errors"][0].get<std::string>(), HasSubstr("train.bin' is corrupt: byte 100"));
}

}  // namespace
}  // namespace trainyard::trainer
