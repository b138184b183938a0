// Tests the safetensors format: a golden file, round trips, and every way in which a file can be
// wrong.
#include "worker/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGolden[] = "tests/unit/worker/checkpoint/golden/small.safetensors";

// The content of the golden file.
TensorFile SmallFile() {
  const float bias[] = {1.5F, -2.0F};
  const float weight[] = {0, 1, 2, 3, 4, 5};
  const int64_t step = 600;
  TensorFile file;
  file.tensors["a.bias"] = FloatTensor({2}, bias);
  file.tensors["a.weight"] = FloatTensor({2, 3}, weight);
  file.tensors["step"] = {"I64", {}, std::string(reinterpret_cast<const char*>(&step), 8)};
  file.tensors["z.empty"] = {"F16", {0, 4}, ""};
  file.metadata["note"] = "a \"quote\"";
  return file;
}

std::string WithHeader(absl::string_view header, absl::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return absl::StrCat(bytes, header, data);
}

// Returns the message of the refusal, or an empty text if the bytes were accepted.
std::string Refusal(absl::string_view bytes) {
  const auto file = DecodeSafetensors(bytes);
  if (file.ok()) return "";
  EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
  return std::string(file.status().message());
}

std::string HeaderRefusal(absl::string_view header, absl::string_view data = "") {
  return Refusal(WithHeader(header, data));
}

TEST(Safetensors, EncodesTheGoldenFileByteForByte) {
  const auto golden = ReadFile(testing::SourcePath(kGolden));
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_EQ(EncodeSafetensors(SmallFile()), *golden);
}

TEST(Safetensors, DecodesTheGoldenFile) {
  const auto file = ReadSafetensors(testing::SourcePath(kGolden));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.size(), 4U);
  EXPECT_EQ(file->metadata.at("format"), "pt");
  EXPECT_EQ(file->metadata.at("note"), "a \"quote\"");
  EXPECT_THAT(file->tensors.at("a.weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(*FloatValues(file->tensors.at("a.weight")), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(*FloatValues(file->tensors.at("a.bias")), ElementsAre(1.5F, -2.0F));
  int64_t step = 0;
  ASSERT_EQ(file->tensors.at("step").data.size(), sizeof(step));
  std::memcpy(&step, file->tensors.at("step").data.data(), sizeof(step));
  EXPECT_EQ(step, 600);
  EXPECT_THAT(file->tensors.at("z.empty").data, IsEmpty());
}

TEST(Safetensors, RoundTripsNamesThatNeedEscapes) {
  TensorFile file;
  file.tensors["line\nbreak \"and\" \\ \x01 \xc3\xa4"] = {"U8", {3}, std::string("\0\xff\x7f", 3)};
  const auto decoded = DecodeSafetensors(EncodeSafetensors(file));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->tensors.size(), 1U);
  EXPECT_EQ(decoded->tensors.begin()->first, file.tensors.begin()->first);
  EXPECT_EQ(decoded->tensors.begin()->second.data, file.tensors.begin()->second.data);
}

TEST(Safetensors, RoundTripsAFileWithoutTensors) {
  const auto decoded = DecodeSafetensors(EncodeSafetensors({}));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(decoded->tensors, IsEmpty());
}

TEST(Safetensors, StartsTheDataOnAMultipleOfEightBytes) {
  for (int extra = 0; extra < 8; ++extra) {
    TensorFile file;
    file.metadata["pad"] = std::string(static_cast<size_t>(extra), 'x');
    EXPECT_EQ(EncodeSafetensors(file).size() % 8, 0U);
  }
}

TEST(Safetensors, FloatValuesRefusesAnotherDtype) {
  const auto values = FloatValues({"I64", {0}, ""});
  EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(values.status().message()), HasSubstr("I64"));
}

TEST(Safetensors, ReadsTheReferenceFiles) {
  const auto file = ReadSafetensors(testing::ReferencePath("convnet.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_GT(file->tensors.size(), 4U);
  const auto again = DecodeSafetensors(EncodeSafetensors(*file));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->tensors.size(), file->tensors.size());
  for (const auto& [name, tensor] : file->tensors) {
    EXPECT_EQ(again->tensors.at(name).data, tensor.data) << name;
  }
}

TEST(Safetensors, ReadNamesTheFileThatIsCorrupt) {
  const testing::TempDir folder;
  const std::string path = folder.Write("model.safetensors", "short");
  const absl::Status status = ReadSafetensors(path).status();
  EXPECT_EQ(ErrorReason(status), "CORRUPT_FILE");
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(ReadSafetensors(folder.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsDecoder, RefusesAFileThatIsTooShortForItsHeader) {
  EXPECT_THAT(Refusal(""), HasSubstr("byte 0: the file ends after 0 bytes"));
  EXPECT_THAT(Refusal("\x10"), HasSubstr("the file ends after 1 bytes"));
  std::string bytes = WithHeader("{}", "");
  bytes[0] = 3;
  EXPECT_THAT(Refusal(bytes), HasSubstr("header's length is 3; the file has only 2"));
}

TEST(SafetensorsDecoder, RefusesALengthOverTheLimit) {
  std::string bytes = WithHeader("{}", "");
  std::memset(bytes.data(), 0xff, 8);
  EXPECT_THAT(Refusal(bytes), HasSubstr("18446744073709551615; at most 100000000"));
}

TEST(SafetensorsDecoder, RefusesAHeaderThatIsNotAnObjectOfObjects) {
  EXPECT_THAT(HeaderRefusal(""), HasSubstr("byte 8: the header starts with"));
  EXPECT_THAT(HeaderRefusal("[]"), HasSubstr("expected \"{\""));
  EXPECT_THAT(HeaderRefusal(" {}"), HasSubstr("expected \"{\""));
  EXPECT_THAT(HeaderRefusal("{"), HasSubstr("not JSON"));
  EXPECT_THAT(HeaderRefusal(R"({"a":1})"), HasSubstr("a number is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"a":[]})"), HasSubstr("an array is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"a":null})"), HasSubstr("null is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":{}}})"), HasSubstr("an object is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"shape":[[1]]}})"), HasSubstr("an array is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"shape":["1"]}})"), HasSubstr("a string is not expected"));
  EXPECT_THAT(HeaderRefusal(R"({"__metadata__":{"a":1}})"), HasSubstr("a number is not expected"));
  EXPECT_THAT(HeaderRefusal("{\"a\xff\":{}}"), HasSubstr("not JSON"));
}

TEST(SafetensorsDecoder, RefusesWhatFollowsTheHeaderExceptSpaces) {
  EXPECT_EQ(HeaderRefusal("{}   "), "");
  EXPECT_THAT(HeaderRefusal("{}\n"), HasSubstr("byte 10: the header continues with \"\\n\""));
  EXPECT_THAT(HeaderRefusal("{}{}"), HasSubstr("byte 10"));
  EXPECT_THAT(HeaderRefusal(absl::string_view("{}\0 ", 4)), HasSubstr("byte 10"));
}

TEST(SafetensorsDecoder, RefusesDuplicateKeysAtEachLevel) {
  constexpr char kA[] = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(HeaderRefusal(absl::StrCat("{", kA, ",", kA, "}")), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(HeaderRefusal(R"({"__metadata__":{},"__metadata__":{}})"),
              HasSubstr("byte 41: duplicate key \"__metadata__\""));
  EXPECT_THAT(HeaderRefusal(R"({"__metadata__":{"k":"1","k":"2"}})"),
              HasSubstr("duplicate key \"k\""));
  EXPECT_THAT(
      HeaderRefusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
      HasSubstr("duplicate key \"dtype\" of tensor \"a\""));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})"),
              HasSubstr("duplicate key \"shape\""));
}

TEST(SafetensorsDecoder, RefusesMissingAndUnknownKeys) {
  EXPECT_THAT(HeaderRefusal(R"({"a":{}})"), HasSubstr("tensor \"a\" lacks dtype"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8"}})"), HasSubstr("lacks shape"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[]}})"), HasSubstr("lacks data_offsets"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"type":"U8"}})"), HasSubstr("unknown key \"type\""));
}

TEST(SafetensorsDecoder, RefusesAnUnknownDtype) {
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("unknown dtype \"F31\""));
}

TEST(SafetensorsDecoder, RefusesNumbersThatAreNoSizes) {
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})"),
              HasSubstr("negative number -1"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,0]}})"),
              HasSubstr("\"1.5\" is not an integer"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[18446744073709551616]}})"),
              HasSubstr("\"18446744073709551616\" is not an integer"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[9223372036854775808]}})"),
              HasSubstr("too large"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})"),
              HasSubstr("are [0]; expected [begin, end]"));
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,0]}})"),
              HasSubstr("are [1, 0]"));
}

TEST(SafetensorsDecoder, RefusesAShapeWhoseProductOverflows) {
  EXPECT_THAT(HeaderRefusal(
                  R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
              HasSubstr("[4294967296, 4294967296] of tensor \"a\" has more bytes"));
  EXPECT_THAT(
      HeaderRefusal(R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})"),
      HasSubstr("has more bytes"));
}

TEST(SafetensorsDecoder, RefusesSizesThatDisagree) {
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"),
              HasSubstr("has 8 bytes; its data_offsets [0, 4] hold 4"));
}

TEST(SafetensorsDecoder, RefusesHolesOverlapsAndAWrongEnd) {
  const auto two = [](absl::string_view first, absl::string_view second) {
    return absl::StrCat(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[)", first,
                        R"(]},"b":{"dtype":"U8","shape":[4],"data_offsets":[)", second, "]}}");
  };
  EXPECT_EQ(HeaderRefusal(two("0,4", "4,8"), "12345678"), "");
  EXPECT_EQ(HeaderRefusal(two("4,8", "0,4"), "12345678"), "");
  EXPECT_THAT(HeaderRefusal(two("0,4", "5,9"), "123456789"),
              HasSubstr("tensor \"b\" begins at data offset 5, leaving a hole; expected 4"));
  EXPECT_THAT(HeaderRefusal(two("0,4", "3,7"), "1234567"),
              HasSubstr("begins at data offset 3, inside its predecessor; expected 4"));
  EXPECT_THAT(HeaderRefusal(two("0,4", "0,4"), "1234"), HasSubstr("inside its predecessor"));
  EXPECT_THAT(HeaderRefusal(two("1,5", "5,9"), "123456789"), HasSubstr("leaving a hole"));
  EXPECT_THAT(HeaderRefusal(two("0,4", "4,8"), "1234567"),
              HasSubstr("ends at data offset 8; the file holds only 7"));
  EXPECT_THAT(HeaderRefusal(two("0,4", "4,8"), "123456789"),
              HasSubstr("take 8 bytes of data; the file holds 9"));
  EXPECT_THAT(HeaderRefusal("{}", "1"), HasSubstr("take 0 bytes of data; the file holds 1"));
}

TEST(SafetensorsDecoder, TellsWhereTheTensorStands) {
  // The quote behind `a` is byte 3 of the header, so byte 11 of the file.
  EXPECT_THAT(HeaderRefusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "12"),
              HasSubstr("byte 11: tensor \"a\" begins"));
}

TEST(SafetensorsDecoder, SurvivesEveryByteOfTheHeaderAndItsLength) {
  const std::string golden = EncodeSafetensors(SmallFile());
  uint64_t length = 0;
  std::memcpy(&length, golden.data(), 8);
  // Tries every flip of a bit, and the characters that mean something to a parser.
  const std::string specials("\0\xff\"\\{}[],:-+.e019 ", 18);
  int refused = 0;
  for (size_t at = 0; at < 8 + length; ++at) {
    std::string values = specials;
    for (int bit = 0; bit < 8; ++bit) values += static_cast<char>(golden[at] ^ (1 << bit));
    for (const char value : values) {
      std::string bytes = golden;
      bytes[at] = value;
      const auto file = DecodeSafetensors(bytes);
      if (!file.ok()) {
        ++refused;
        ASSERT_EQ(file.status().code(), absl::StatusCode::kDataLoss);
        ASSERT_LT(file.status().message().size(), 1000U);
        continue;
      }
      // Accepted contents contain no more than the file.
      size_t total = 0;
      for (const auto& [name, tensor] : file->tensors) total += tensor.data.size();
      ASSERT_LE(total, bytes.size());
    }
  }
  EXPECT_GT(refused, 10 * static_cast<int>(length));
}

TEST(SafetensorsDecoder, RefusesEveryTruncation) {
  const std::string golden = EncodeSafetensors(SmallFile());
  for (size_t size = 0; size < golden.size(); ++size) {
    EXPECT_NE(Refusal(absl::string_view(golden).substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace trainyard::checkpoint
