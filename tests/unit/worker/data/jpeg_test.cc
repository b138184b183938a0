// Tests the decoding of JPEGs: whole, in part, at a smaller scale, and damaged.
#include "worker/data/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/unit/worker/data/jpeg_files.h"

namespace trainyard::data {
namespace {

using ::testing::HasSubstr;

Framing Whole(int64_t width, int64_t height) {
  return {.width = static_cast<double>(width), .height = static_cast<double>(height)};
}

absl::StatusOr<std::vector<float>> Decode(absl::string_view bytes, const Framing& framing,
                                          int64_t out_width, int64_t out_height) {
  auto image = JpegReader::Open(bytes);
  if (!image.ok()) return image.status();
  std::vector<float> out(static_cast<size_t>(3 * out_width * out_height), -1);
  absl::Status read = (*image)->Read(framing, out_width, out_height, absl::MakeSpan(out));
  if (!read.ok()) return read;
  return out;
}

std::vector<float> Decoded(absl::string_view bytes, const Framing& framing, int64_t out_width,
                           int64_t out_height) {
  auto out = Decode(bytes, framing, out_width, out_height);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *out : std::vector<float>();
}

std::string Refusal(absl::string_view bytes, const Framing& framing = Whole(100, 80)) {
  const absl::Status status = Decode(bytes, framing, 100, 80).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  return std::string(status.message());
}

TEST(Jpeg, DecodesColoursIntoPlanes) {
  for (const bool is_progressive : {false, true}) {
    const std::string bytes = SlopeJpeg(100, 80, {.is_progressive = is_progressive});
    const std::vector<float> out = Decoded(bytes, Whole(100, 80), 100, 80);
    size_t p = 0;
    for (int y = 0; y < 80; ++y) {
      for (int x = 0; x < 100; ++x, ++p) {
        ASSERT_NEAR(out[p], x / 100.0, 0.03) << x << " " << y;
        ASSERT_NEAR(out[8000 + p], y / 80.0, 0.03) << x << " " << y;
        ASSERT_NEAR(out[16000 + p], 0.5, 0.03) << x << " " << y;
      }
    }
  }
}

TEST(Jpeg, APartIsWhatTheWholeHasThere) {
  // The framing cuts through blocks anywhere, with colours at full and at half resolution.
  for (const int subsampling : {1, 2}) {
    const std::string bytes = SlopeJpeg(100, 80, {.subsampling = subsampling});
    const std::vector<float> whole = Decoded(bytes, Whole(100, 80), 100, 80);
    for (const int left : {0, 1, 7, 16, 33, 79}) {
      for (const int top : {0, 1, 8, 15, 40, 67}) {
        const Framing framing = {.x = static_cast<double>(left),
                                 .y = static_cast<double>(top),
                                 .width = 21,
                                 .height = 13};
        const std::vector<float> part = Decoded(bytes, framing, 21, 13);
        ASSERT_EQ(part.size(), 3u * 21 * 13);
        for (int c = 0; c < 3; ++c) {
          for (int y = 0; y < 13; ++y) {
            for (int x = 0; x < 21; ++x) {
              ASSERT_EQ(part[static_cast<size_t>((c * 13 + y) * 21 + x)],
                        whole[static_cast<size_t>((c * 80 + top + y) * 100 + left + x)])
                  << subsampling << ": " << left << " + " << x << ", " << top << " + " << y;
            }
          }
        }
      }
    }
  }
}

TEST(Jpeg, ASmallerScaleShowsTheSame) {
  // The scales are a half, a quarter, an eighth, and values between them.
  const std::string bytes = SlopeJpeg(400, 320);
  for (const int64_t width : {400, 300, 200, 170, 100, 70, 50, 30, 10}) {
    const int64_t height = width * 4 / 5;
    const std::vector<float> out = Decoded(bytes, Whole(400, 320), width, height);
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const auto p = static_cast<size_t>(y * width + x);
        const double expected = (static_cast<double>(x) + 0.5) / static_cast<double>(width);
        ASSERT_NEAR(out[p], expected, 0.03) << width << ": " << x << " " << y;
        ASSERT_NEAR(out[static_cast<size_t>(width * height) + p],
                    (static_cast<double>(y) + 0.5) / static_cast<double>(height), 0.03);
      }
    }
  }
}

TEST(Jpeg, AScaledPartLiesWhereItShould) {
  const std::string bytes = SlopeJpeg(400, 320);
  const Framing framing = {.x = 123, .y = 77, .width = 200, .height = 160, .flip = true};
  const std::vector<float> out = Decoded(bytes, framing, 50, 40);
  for (int y = 0; y < 40; ++y) {
    for (int x = 0; x < 50; ++x) {
      ASSERT_NEAR(out[static_cast<size_t>(50 * y + 49 - x)], (123 + 4 * (x + 0.5)) / 400, 0.03);
      ASSERT_NEAR(out[static_cast<size_t>(2000 + 50 * y + x)], (77 + 4 * (y + 0.5)) / 320, 0.03);
    }
  }
}

TEST(Jpeg, GreyAndCmykBecomeColours) {
  const auto level = [](int x, int, int) { return 2 * x; };
  const std::vector<float> grey =
      Decoded(JpegBytes(100, 80, level, {.components = 1}), Whole(100, 80), 100, 80);
  ASSERT_EQ(grey.size(), 24'000u);
  EXPECT_NEAR(grey[50], 100 / 255.0, 0.02);
  EXPECT_EQ(grey[50], grey[8050]);
  EXPECT_EQ(grey[50], grey[16050]);
  // This is how Adobe writes it: 255 is no ink. There is no black, half of the cyan, all magenta.
  const auto inks = [](int, int, int c) { return c == 0 ? 128 : c == 1 ? 0 : 255; };
  const std::vector<float> cmyk =
      Decoded(JpegBytes(100, 80, inks, {.components = 4}), Whole(100, 80), 100, 80);
  ASSERT_EQ(cmyk.size(), 24'000u);
  EXPECT_NEAR(cmyk[50], 0.5, 0.02);
  EXPECT_NEAR(cmyk[8050], 0, 0.02);
  EXPECT_NEAR(cmyk[16050], 1, 0.02);
}

TEST(Jpeg, RefusesATruncatedFileWhereverItIsCut) {
  const std::string bytes = SlopeJpeg(100, 80);
  for (size_t size : {bytes.size() - 1, bytes.size() - 2, bytes.size() / 2, size_t{700}}) {
    EXPECT_THAT(Refusal(absl::string_view(bytes).substr(0, size)),
                HasSubstr(absl::StrCat("byte ", size, ": ")));
    // The error is also found if the part that is read lies before the cut.
    Refusal(absl::string_view(bytes).substr(0, size), {.width = 8, .height = 8});
  }
  EXPECT_THAT(Refusal(absl::string_view(bytes).substr(0, 100)), HasSubstr("byte 100: "));
  EXPECT_EQ(Refusal(""), "byte 0: the file is empty");
  EXPECT_THAT(Refusal("no image at all"), HasSubstr("Not a JPEG file: starts with 0x6e 0x6f"));
}

TEST(Jpeg, RefusesDamagedData) {
  // This is a marker amid the coefficients.
  std::string bytes = SlopeJpeg(100, 80, {.quality = 100});
  const size_t middle = bytes.size() * 3 / 4;
  bytes[middle] = '\xff';
  bytes[middle + 1] = '\xd9';
  EXPECT_THAT(Refusal(bytes), HasSubstr("Corrupt JPEG data: premature end of data segment"));
}

// Puts bytes before the end mark, where a decoder that lost its place has data left.
std::string WithLeftover(std::string bytes, const std::string& leftover) {
  bytes.insert(bytes.size() - 2, leftover);
  return bytes;
}

absl::Status ReadWhole(absl::string_view bytes, JpegCheck check) {
  const auto image = JpegReader::Open(bytes, check);
  if (!image.ok()) return image.status();
  std::vector<float> out(size_t{3} * 100 * 80);
  return (*image)->Read(Whole(100, 80), 100, 80, absl::MakeSpan(out));
}

TEST(Jpeg, DataLeftOverIsDamageForWhoReadsToTheEnd) {
  for (const bool is_progressive : {false, true}) {
    const std::string whole = SlopeJpeg(100, 80, {.is_progressive = is_progressive});
    EXPECT_TRUE(ReadWhole(whole, JpegCheck::kToTheEnd).ok());
    const std::string bytes = WithLeftover(whole, whole.substr(whole.size() - 40, 30));
    const absl::Status status = ReadWhole(bytes, JpegCheck::kToTheEnd);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("byte ", bytes.size() - 2, ": Corrupt JPEG data: ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("extraneous bytes before marker 0xd9"));
    EXPECT_TRUE(ReadWhole(bytes, JpegCheck::kAsRead).ok());
  }
}

TEST(Jpeg, PaddingAndWrongMetadataAreNoDamage) {
  const std::string whole = SlopeJpeg(100, 80);
  EXPECT_TRUE(ReadWhole(WithLeftover(whole, std::string(50, '\0')), JpegCheck::kToTheEnd).ok());
  EXPECT_TRUE(ReadWhole(WithLeftover(whole, std::string(50, '\xff')), JpegCheck::kToTheEnd).ok());
  // The JFIF segment is two bytes longer than it says.
  std::string metadata = whole;
  const size_t length = static_cast<uint8_t>(whole[5]);
  metadata.insert(4 + length, "ab");
  EXPECT_TRUE(ReadWhole(metadata, JpegCheck::kToTheEnd).ok());
}

// A JPEG has no checksum, so damage shows only where the decoder loses its place, in the middle or
// at the end.
TEST(Jpeg, ReadingToTheEndFindsMoreDamage) {
  std::minstd_rand random(7);
  const auto level = [&random](int x, int y, int) {
    return (x * y + static_cast<int>(random() % 60)) % 256;
  };
  const std::string whole = JpegBytes(100, 80, level);
  constexpr int kCopies = 64;
  int found_as_read = 0;
  int found_to_the_end = 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    std::string bytes = whole;
    const size_t begin = bytes.size() / 4 + random() % (bytes.size() / 2);
    for (size_t i = 0; i < 16; ++i) bytes[begin + i] = static_cast<char>(random() >> 7);
    const bool is_found = !ReadWhole(bytes, JpegCheck::kAsRead).ok();
    if (is_found) ++found_as_read;
    if (!ReadWhole(bytes, JpegCheck::kToTheEnd).ok()) {
      ++found_to_the_end;
    } else {
      EXPECT_FALSE(is_found) << copy;
    }
  }
  EXPECT_GT(found_to_the_end, found_as_read + kCopies / 4);
}

TEST(Jpeg, RefusesABomb) {
  std::string bytes = SlopeJpeg(16, 16);
  // The frame header: 0xffc0, length, precision, height, width.
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, "\xea\x60\xea\x60");
  EXPECT_THAT(Refusal(bytes), HasSubstr("an image of 60000 x 60000 pixels; at most 67108864"));
}

TEST(Jpeg, PhotographsKeepTheirLightAtASmallerScale) {
  const auto folder = testing::DataPath("jpeg-samples");
  if (!folder) GTEST_SKIP() << testing::MissingData("jpeg-samples");
  const auto names = ListDirectory(*folder);
  ASSERT_TRUE(names.ok());
  const auto mean = [](const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value);
    return sum / static_cast<double>(values.size());
  };
  for (const std::string& name : *names) {
    const auto bytes = ReadFile(JoinPath(*folder, name));
    ASSERT_TRUE(bytes.ok());
    const auto image = JpegReader::Open(*bytes);
    ASSERT_TRUE(image.ok()) << name << image.status();
    const Framing whole = Whole((*image)->width(), (*image)->height());
    const std::vector<float> full = Decoded(*bytes, whole, (*image)->width(), (*image)->height());
    EXPECT_NEAR(mean(Decoded(*bytes, whole, 64, 64)), mean(full), 0.01) << name;
  }
}

}  // namespace
}  // namespace trainyard::data
