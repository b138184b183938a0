// Decodes JPEG images: a framing of each, as training reads it.
#include "worker/data/jpeg.h"

#include <vector>

#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::jpeg {
namespace {

// A photograph has many more pixels than bytes. An input of 8 KiB may have 4 million, with 6 bytes
// for each.
constexpr int64_t kJpegBytes = int64_t{32} << 20;

// The first bytes are the side of the sample, and the part of the image that becomes it.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const auto side = static_cast<int64_t>(1 + input.Below(64));
  const double x = input.Byte() / 256.0;
  const double y = input.Byte() / 256.0;
  const double part = (1 + input.Byte()) / 256.0;
  const auto image = data::JpegReader::Open(input.Rest());
  if (!image.ok()) return;
  const auto width = static_cast<double>((*image)->width());
  const auto height = static_cast<double>((*image)->height());
  TY_CHECK(width >= 1 && height >= 1 && width * height <= data::kMaxJpegPixels);
  const data::Framing framing = {.x = x * width * (1 - part),
                                 .y = y * height * (1 - part),
                                 .width = part * width,
                                 .height = part * height,
                                 .flip = input.empty()};
  std::vector<float> out(static_cast<size_t>(3 * side * side));
  const absl::Status status = (*image)->Read(framing, side, side, absl::MakeSpan(out));
  if (!status.ok()) return;
  // The weights of the filter add up to 1 as far as floats do.
  for (const float value : out) TY_CHECK(value >= 0 && value <= 1.0001F);
}

const Registration kTarget({.name = "jpeg", .run = Run, .fixed_bytes = kJpegBytes});

}  // namespace
}  // namespace trainyard::fuzz::jpeg
