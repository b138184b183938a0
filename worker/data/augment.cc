// Draws and applies random changes. The choices are the same on every machine: the code uses only +
// - * / and sqrt of doubles and no libm, as glyphs.cc does.
#include "worker/data/augment.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/check.h"
#include "worker/data/random.h"

namespace trainyard::data {
namespace {

// Each kind of choice has a random stream of its own, so that switching one on leaves the others
// unchanged.
constexpr uint64_t kAreaStream = 1;
constexpr uint64_t kPadStream = 2;
constexpr uint64_t kFlipStream = 3;
constexpr uint64_t kColorStream = 4;
constexpr uint64_t kCutoutStream = 5;
// This keeps the keys of samples apart from those of the sampler and of glyphs.
constexpr uint64_t kSampleDomain = 0x61756767656e742d;

constexpr double kLogFourThirds = 0.28768207245178085;
// The number of places that are tried before the whole of the base is taken, as in torchvision's
// RandomResizedCrop.
constexpr int kAreaTries = 10;

RandomStream StreamOf(uint64_t key, uint64_t purpose) {
  return RandomStream(Mix64(key + purpose * kGolden));
}

// Returns e^x for |x| <= 0.3 by its series, with an error of about the last bit of a double.
double SmallExp(double x) {
  double sum = 1;
  for (int n = 12; n >= 1; --n) sum = 1 + x * sum / n;
  return sum;
}

// Returns false if no try fitted.
bool DrawArea(const Augmentation& augmentation, RandomStream random, int64_t width, int64_t height,
              Framing& framing) {
  const auto area = static_cast<double>(width * height);
  for (int i = 0; i < kAreaTries; ++i) {
    const double target = area * random.Between(augmentation.min_area, augmentation.max_area);
    const double ratio = SmallExp(random.Between(-kLogFourThirds, kLogFourThirds));
    const int64_t w = std::lround(std::sqrt(target * ratio));
    const int64_t h = std::lround(std::sqrt(target / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    framing.x = static_cast<double>(random.Below(static_cast<uint64_t>(width - w + 1)));
    framing.y = static_cast<double>(random.Below(static_cast<uint64_t>(height - h + 1)));
    framing.width = static_cast<double>(w);
    framing.height = static_cast<double>(h);
    return true;
  }
  return false;
}

// Returns a factor between 1 - amount, but not below 0, and 1 + amount.
float DrawFactor(double amount, RandomStream& random) {
  return static_cast<float>(random.Between(std::max(0.0, 1 - amount), 1 + amount));
}

float Blend(float value, float toward, float factor) {
  return std::min(std::max(toward + factor * (value - toward), 0.0F), 1.0F);
}

// These are the weights of luma in ITU-R BT.601, as in torchvision.
constexpr float kRed = 0.2989F;
constexpr float kGreen = 0.587F;
constexpr float kBlue = 0.114F;

// The mean is taken in eight sums in parallel, in the same order on every machine.
float Mean(absl::Span<const float> pixels) {
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  size_t p = 0;
  for (; p + kLanes <= pixels.size(); p += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) sums[i] += static_cast<double>(pixels[p + i]);
  }
  double sum = 0;
  for (; p < pixels.size(); ++p) sum += static_cast<double>(pixels[p]);
  for (const double lane : sums) sum += lane;
  return static_cast<float>(sum / static_cast<double>(pixels.size()));
}

void ScaleContrast(absl::Span<float> pixels, size_t channels, size_t area, float factor) {
  float mean = 0;
  if (channels == 3) {
    mean = kRed * Mean(pixels.subspan(0, area)) + kGreen * Mean(pixels.subspan(area, area)) +
           kBlue * Mean(pixels.subspan(2 * area, area));
  } else {
    mean = Mean(pixels);
  }
  for (float& value : pixels) value = Blend(value, mean, factor);
}

float Clamp(float value) {
  return std::min(std::max(value, 0.0F), 1.0F);
}

// Converts RGB to HSV, adds `turn` (a part of the circle in [0, 1)) to the hue, and converts back
// to RGB, as torchvision's adjust_hue does. Saturation times value is the chroma, so neither needs
// a division.
void TurnHue(absl::Span<float> pixels, size_t channels, size_t area, float turn) {
  if (channels != 3) return;
  float* red = pixels.data();
  float* green = red + area;
  float* blue = green + area;
  const float turn6 = 6.0F * turn;
  for (size_t p = 0; p < area; ++p) {
    const float r = red[p], g = green[p], b = blue[p];
    const float value = std::max(std::max(r, g), b);
    const float chroma = value - std::min(std::min(r, g), b);
    const float scale = 1.0F / std::max(chroma, 1e-20F);  // grey has no hue, so any value will do
    const float of_red = (g - b) * scale;
    const float of_green = 2.0F + (b - r) * scale;
    const float of_blue = 4.0F + (r - g) * scale;
    float h = turn6 + (value == r ? of_red : (value == g ? of_green : of_blue));
    h += h < 0.0F ? 6.0F : 0.0F;
    h -= h >= 6.0F ? 6.0F : 0.0F;
    // These three clamped functions replace the six cases of the textbook
    // (en.wikipedia.org/wiki/HSL_and_HSV).
    const float low = value - chroma;
    red[p] = low + chroma * Clamp(std::abs(h - 3.0F) - 1.0F);
    green[p] = low + chroma * Clamp(2.0F - std::abs(h - 2.0F));
    blue[p] = low + chroma * Clamp(2.0F - std::abs(h - 4.0F));
  }
}

void ScaleSaturation(absl::Span<float> pixels, size_t channels, size_t area, float factor) {
  if (channels != 3) return;
  float* red = pixels.data();
  float* green = red + area;
  float* blue = green + area;
  for (size_t p = 0; p < area; ++p) {
    const float gray = kRed * red[p] + kGreen * green[p] + kBlue * blue[p];
    red[p] = Blend(red[p], gray, factor);
    green[p] = Blend(green[p], gray, factor);
    blue[p] = Blend(blue[p], gray, factor);
  }
}

// This is far below what the fields of a StoredRow can hold.
constexpr int64_t kStoredPixelsMax = 4096;

// The pixels [left, right) x [top, bottom), which lie within the image.
struct Square {
  int64_t left = 0;
  int64_t top = 0;
  int64_t right = 0;
  int64_t bottom = 0;
};

Square DrawSquare(const Augmentation& augmentation, uint64_t key, int64_t height, int64_t width) {
  if (augmentation.cutout <= 0) return {};
  RandomStream random = StreamOf(key, kCutoutStream);
  const auto low = [&](int64_t size) {
    return static_cast<int64_t>(random.Below(static_cast<uint64_t>(size))) -
           augmentation.cutout / 2;
  };
  const int64_t top = low(height);
  const int64_t left = low(width);
  return {.left = std::max<int64_t>(0, left),
          .top = std::max<int64_t>(0, top),
          .right = std::min(width, left + augmentation.cutout),
          .bottom = std::min(height, top + augmentation.cutout)};
}

}  // namespace

uint64_t SampleKey(uint64_t seed, int64_t epoch, int64_t index) {
  const uint64_t of_epoch =
      Mix64(Mix64(seed ^ kSampleDomain) + static_cast<uint64_t>(epoch) * kGolden);
  return Mix64(of_epoch + static_cast<uint64_t>(index) * kGolden);
}

Framing DrawFraming(const Augmentation& augmentation, uint64_t key, int64_t width, int64_t height,
                    const Framing& base, int64_t out_width, int64_t out_height) {
  Framing framing = base;
  if (augmentation.max_area > 0) {
    DrawArea(augmentation, StreamOf(key, kAreaStream), width, height, framing);
  }
  if (augmentation.pad_crop > 0) {
    RandomStream random = StreamOf(key, kPadStream);
    const auto places = static_cast<uint64_t>(2 * augmentation.pad_crop + 1);
    const auto shift = [&] {
      return static_cast<double>(static_cast<int64_t>(random.Below(places)) -
                                 augmentation.pad_crop);
    };
    // A shift by whole pixels of the sample.
    framing.x += shift() * framing.width / static_cast<double>(out_width);
    framing.y += shift() * framing.height / static_cast<double>(out_height);
  }
  if (augmentation.flip) framing.flip = StreamOf(key, kFlipStream).Below(2) == 1;
  return framing;
}

void JitterColor(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
                 absl::Span<float> pixels) {
  if (augmentation.brightness <= 0 && augmentation.contrast <= 0 && augmentation.saturation <= 0 &&
      augmentation.hue <= 0) {
    return;
  }
  const auto channels = static_cast<size_t>(shape[0]);
  const size_t area = pixels.size() / channels;
  RandomStream random = StreamOf(key, kColorStream);
  const float brightness = DrawFactor(augmentation.brightness, random);
  const float contrast = DrawFactor(augmentation.contrast, random);
  const float saturation = DrawFactor(augmentation.saturation, random);
  std::array<int, 3> order = {0, 1, 2};
  std::swap(order[2], order[random.Below(3)]);
  std::swap(order[1], order[random.Below(2)]);
  // The hue is drawn last, so that the other choices are the same with and without it.
  const double turn = random.Between(-augmentation.hue, augmentation.hue);
  const uint64_t place = random.Below(4);
  for (uint64_t i = 0; i <= order.size(); ++i) {
    if (i == place && augmentation.hue > 0) {
      TurnHue(pixels, channels, area, static_cast<float>(turn < 0 ? turn + 1 : turn));
    }
    if (i == order.size()) break;
    const int what = order[i];
    if (what == 0 && augmentation.brightness > 0) {
      for (float& value : pixels) value = Blend(value, 0, brightness);
    } else if (what == 1 && augmentation.contrast > 0) {
      ScaleContrast(pixels, channels, area, contrast);
    } else if (what == 2 && augmentation.saturation > 0) {
      ScaleSaturation(pixels, channels, area, saturation);
    }
  }
}

bool IsStoredRow(const Augmentation& augmentation, const std::vector<int64_t>& shape) {
  const bool changes_color = augmentation.brightness > 0 || augmentation.contrast > 0 ||
                             augmentation.saturation > 0 || augmentation.hue > 0;
  return shape.size() == 3 && shape[0] <= kStoredChannelsMax &&
         std::max(shape[1], shape[2]) <= kStoredPixelsMax &&
         augmentation.pad_crop <= kStoredPixelsMax && augmentation.max_area <= 0 && !changes_color;
}

StoredRow DrawStoredRow(const Augmentation& augmentation, uint64_t key,
                        const std::vector<int64_t>& shape, int64_t image) {
  TY_CHECK(IsStoredRow(augmentation, shape));
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  const Framing whole{.width = static_cast<double>(width), .height = static_cast<double>(height)};
  const Framing framing = DrawFraming(augmentation, key, width, height, whole, width, height);
  const Square cut = DrawSquare(augmentation, key, height, width);
  return {.image = image,
          .dx = static_cast<int16_t>(framing.x),
          .dy = static_cast<int16_t>(framing.y),
          .cut_x = static_cast<int16_t>(cut.left),
          .cut_y = static_cast<int16_t>(cut.top),
          .cut_width = static_cast<int16_t>(cut.right - cut.left),
          .cut_height = static_cast<int16_t>(cut.bottom - cut.top),
          .flip = framing.flip ? 1 : 0};
}

void CutOut(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
            absl::Span<float> pixels) {
  if (augmentation.cutout <= 0) return;
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  const Square square = DrawSquare(augmentation, key, height, width);
  for (int64_t c = 0; c < shape[0]; ++c) {
    for (int64_t y = square.top; y < square.bottom; ++y) {
      float* row = pixels.data() + (c * height + y) * width;
      std::fill(row + square.left, row + square.right, 0.0F);
    }
  }
}

}  // namespace trainyard::data
