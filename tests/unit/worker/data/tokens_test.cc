// Tests token data: both forms of files, windows and their labels, and what can be wrong with a
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/data/token_files.h"
#include "worker/data/open_dataset.h"
#include "worker/data/prefetch.h"
#include "worker/data/token_dataset.h"

namespace trainyard::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Sample {
  std::vector<float> tokens;
  std::vector<int32_t> labels;
  absl::Status status;
};

Sample ReadSample(const Dataset& dataset, int64_t index) {
  const auto count = static_cast<size_t>(dataset.labels_per_row());
  Sample sample{std::vector<float>(count), std::vector<int32_t>(count), {}};
  sample.status = dataset.Read(index, absl::MakeSpan(sample.tokens), absl::MakeSpan(sample.labels));
  return sample;
}

class TokensTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    TY_CHECK_OK(MakeDirectories(folder_.File("text")));
    folder_.Write("text/" + name, bytes);
  }
  DatasetOptions Options(int64_t context, int64_t vocabulary) const {
    DatasetOptions options;
    options.dataset_dir = folder_.path();
    options.path = "text";
    options.context = context;
    options.vocabulary = vocabulary;
    return options;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(int64_t context, int64_t vocabulary = 0,
                                                Split split = Split::kTrain) const {
    return OpenDataset("tokens", split, Options(context, vocabulary));
  }
  std::string Refusal(absl::StatusCode code, int64_t context = 3) const {
    const absl::Status status = Open(context).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const testing::TempDir folder_;
};

TEST_F(TokensTest, SamplesAreWindowsWithTheNextTokenAsLabel) {
  Write("train.bin", RawTokens({5, 1, 300, 2, 65535, 9, 4, 8}));
  const auto dataset = Open(3);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 2) << "4 and its successor are too few for a third";
  EXPECT_THAT((*dataset)->sample_shape(), ElementsAre(3));
  EXPECT_EQ((*dataset)->labels_per_row(), 3);
  EXPECT_EQ((*dataset)->classes(), 65536);
  EXPECT_TRUE((*dataset)->has_tokens());
  EXPECT_THAT(ReadSample(**dataset, 0).tokens, ElementsAre(5, 1, 300));
  EXPECT_THAT(ReadSample(**dataset, 0).labels, ElementsAre(1, 300, 2));
  EXPECT_THAT(ReadSample(**dataset, 1).tokens, ElementsAre(2, 65535, 9));
  EXPECT_THAT(ReadSample(**dataset, 1).labels, ElementsAre(65535, 9, 4));
  EXPECT_EQ((*Open(7))->size(), 1);
  EXPECT_EQ((*Open(1))->size(), 7);
}

TEST_F(TokensTest, AHeaderOfLlmCChangesNothing) {
  const std::vector<uint16_t> tokens = {7, 6, 5, 4, 3, 2, 1};
  Write("train.bin", RawTokens(tokens));
  Write("val.bin", HeadedTokens(tokens));
  const auto raw = Open(2);
  const auto headed = Open(2, 0, Split::kTest);
  ASSERT_TRUE(raw.ok() && headed.ok()) << headed.status();
  EXPECT_EQ((*headed)->size(), (*raw)->size());
  for (int64_t i = 0; i < (*raw)->size(); ++i) {
    EXPECT_EQ(ReadSample(**headed, i).tokens, ReadSample(**raw, i).tokens);
    EXPECT_EQ(ReadSample(**headed, i).labels, ReadSample(**raw, i).labels);
  }
  EXPECT_EQ((*headed)->digest(), (*raw)->digest());
  Write("val.bin", HeadedTokens({7, 6, 5, 4, 3, 2, 2}));
  EXPECT_NE((*Open(2, 0, Split::kTest))->digest(), (*raw)->digest());
}

TEST_F(TokensTest, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  Write("train.bin", RawTokens({0, 1, 2, 3, 4, 5, 50257, 6}));
  const auto dataset = Open(2, 50257);
  ASSERT_TRUE(dataset.ok()) << "nothing is read before it is asked for: " << dataset.status();
  EXPECT_EQ((*dataset)->classes(), 50257);
  EXPECT_TRUE(ReadSample(**dataset, 1).status.ok());
  const absl::Status status = ReadSample(**dataset, 2).status;
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
  EXPECT_EQ(status.message(),
            absl::StrCat("'", folder_.File("text/train.bin"),
                         "' is corrupt: byte 12: token 50257; expected 0 to 50256, the vocabulary "
                         "of the network"));
  EXPECT_EQ((*dataset)->Verify(2), status);
  Write("train.bin", HeadedTokens({0, 9, 1}));
  EXPECT_THAT(std::string(ReadSample(**Open(2, 9), 0).status.message()),
              HasSubstr("byte 1026: token 9; expected 0 to 8"));
}

TEST_F(TokensTest, RefusesFilesThatAreTooShort) {
  Write("train.bin", RawTokens({1, 2, 3}));
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument),
              HasSubstr("text/train.bin' has 3 tokens for the training split; expected at least 4, "
                        "one sample and the token after it"));
  EXPECT_EQ(ErrorReason(Open(3).status()), "DATASET_TOO_SMALL");
  Write("train.bin", "");
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument), HasSubstr("has 0 tokens"));
  EXPECT_THAT(Refusal(absl::StatusCode::kInvalidArgument, 0), HasSubstr("reads no tokens"));
}

TEST_F(TokensTest, RefusesFilesThatAreCutOff) {
  const std::string raw = RawTokens({1, 2, 3, 4, 5});
  Write("train.bin", raw.substr(0, 9));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 9: the file ends in the middle of a token"));
  const std::string headed = HeadedTokens({1, 2, 3, 4, 5});
  Write("train.bin", headed.substr(0, headed.size() - 2));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 1032: the file has 1032 bytes; expected 1034, since its header says "
                        "5 tokens"));
  Write("train.bin", headed + "xy");
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("byte 1034: the file has 1036"));
  Write("train.bin", headed.substr(0, 100));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 100: the file ends; expected a header of 1024 bytes"));
}

TEST_F(TokensTest, RefusesHeadersOfOtherFormats) {
  Write("train.bin", HeadedTokens({1, 2, 3, 4, 5}, 20240520, 7));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss), HasSubstr("byte 4: version 7; expected 1"));
  Write("train.bin", HeadedTokens({1, 2, 3, 4, 5}, 20240801, 7));
  EXPECT_THAT(Refusal(absl::StatusCode::kDataLoss),
              HasSubstr("byte 0: magic number 20240801, of tokens of 32 bits; expected 20240520"));
}

TEST_F(TokensTest, NamesTheFileThatIsMissingAndStaysBelowItsFolder) {
  Write("train.bin", RawTokens({1, 2, 3, 4, 5}));
  const absl::Status missing = Open(2, 0, Split::kTest).status();
  EXPECT_EQ(ErrorReason(missing), "DATASET_NOT_FOUND");
  EXPECT_THAT(std::string(missing.message()), HasSubstr(folder_.File("text/val.bin")));
  for (const char* path : {"", "../text", "/etc", "a/../../b"}) {
    DatasetOptions options = Options(2, 0);
    options.path = path;
    const absl::Status status = OpenDataset("tokens", Split::kTrain, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_EQ(GetFieldViolations(status)[0].field, "spec.data.path");
  }
}

TEST_F(TokensTest, TheDigestOfALargeFileSeesItsLengthAndItsEnds) {
  std::string bytes(5 << 20, '\1');
  Write("train.bin", bytes);
  const std::string whole = (*Open(2))->digest();
  EXPECT_EQ((*Open(8))->digest(), whole);
  Write("train.bin", bytes.substr(2));
  EXPECT_NE((*Open(2))->digest(), whole);
  for (const size_t at : {size_t{0}, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = '\2';
    Write("train.bin", changed);
    EXPECT_NE((*Open(2))->digest(), whole) << at;
  }
}

TEST_F(TokensTest, ThePrefetcherKeepsTheLabelsOfEachRowTogether) {
  Write("train.bin", RawTokens({0, 1, 2, 3, 4, 99, 6, 7, 8, 9, 10}));
  const auto dataset = Open(2, 50);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (const int threads : {1, 3}) {
    Preparation preparation;
    preparation.threads = threads;
    preparation.on_corrupt = OnCorrupt::kLeaveOut;
    Prefetcher prefetcher(
        **dataset, preparation,
        [](int64_t sequence) {
          return sequence == 0 ? std::vector<int64_t>{4, 2, 0} : std::vector<int64_t>();
        },
        1);
    const PreparedBatch* batch = prefetcher.Next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->rows, 2);
    EXPECT_EQ(batch->skipped, 1);
    EXPECT_THAT(batch->inputs, ElementsAre(8, 9, 0, 1));
    EXPECT_THAT(batch->labels, ElementsAre(9, 10, 1, 2));
    EXPECT_EQ(prefetcher.Next(), nullptr);
  }
}

class TinyShakespeareTest : public TokensTest {
 protected:
  void WriteText(const std::string& text) {
    TY_CHECK_OK(MakeDirectories(folder_.File("tinyshakespeare")));
    folder_.Write("tinyshakespeare/input.txt", text);
  }
  absl::StatusOr<std::unique_ptr<Dataset>> OpenText(Split split) const {
    return OpenDataset("tinyshakespeare", split, Options(4, 65));
  }
};

TEST_F(TinyShakespeareTest, CharactersAreNumberedInTheirOrder) {
  WriteText("\n !ABCzyx$and some more: this is the end.");  // 41 characters, 36 of them to train
  const auto train = OpenText(Split::kTrain);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ((*train)->size(), 8);
  EXPECT_EQ((*train)->classes(), 65);
  EXPECT_THAT(ReadSample(**train, 0).tokens, ElementsAre(0, 1, 2, 13));
  EXPECT_THAT(ReadSample(**train, 0).labels, ElementsAre(1, 2, 13, 14));
  EXPECT_THAT(ReadSample(**train, 1).tokens, ElementsAre(14, 15, 64, 63));
  const auto test = OpenText(Split::kTest);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 1);
  EXPECT_THAT(ReadSample(**test, 0).tokens, ElementsAre(1, 43, 52, 42)) << "' end'";
  EXPECT_NE((*test)->digest(), (*train)->digest());
}

TEST_F(TinyShakespeareTest, RefusesACharacterThatTheTextLacks) {
  WriteText(std::string(30, 'a') + "#" + std::string(30, 'b'));
  const auto train = OpenText(Split::kTrain);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_TRUE(ReadSample(**train, 0).status.ok());
  EXPECT_THAT(std::string(ReadSample(**train, 7).status.message()),
              HasSubstr("tinyshakespeare/input.txt' is corrupt: byte 30: character 35; expected "
                        "one of the 65 that the text has"));
}

TEST_F(TinyShakespeareTest, IsWhatItAlwaysWas) {
  if (!testing::DataPath("tinyshakespeare")) {
    GTEST_SKIP() << testing::MissingData("tinyshakespeare");
  }
  DatasetOptions options = Options(64, 65);
  options.dataset_dir = *testing::DataPath("");
  const auto train = OpenDataset("tinyshakespeare", Split::kTrain, options);
  const auto test = OpenDataset("tinyshakespeare", Split::kTest, options);
  ASSERT_TRUE(train.ok() && test.ok()) << train.status();
  // There are 1,003,854 characters to train and 111,540 to test, as in nanoGPT.
  EXPECT_EQ((*train)->size(), 15685);
  EXPECT_EQ((*test)->size(), 1742);
  std::set<int32_t> seen;
  for (int64_t i = 0; i < (*train)->size(); ++i) {
    const Sample sample = ReadSample(**train, i);
    ASSERT_TRUE(sample.status.ok()) << sample.status;
    seen.insert(sample.labels.begin(), sample.labels.end());
  }
  EXPECT_EQ(seen.size(), 65U);
  // The text begins with "First Citizen:".
  const std::vector<float> tokens = ReadSample(**train, 0).tokens;
  EXPECT_THAT(std::vector<float>(tokens.begin(), tokens.begin() + 14),
              ElementsAre(18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52, 10));
}

}  // namespace
}  // namespace trainyard::data
