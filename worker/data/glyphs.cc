// Draws the same bytes on every machine: it uses only + - * / and sqrt of doubles, which IEEE 754
// rounds in one way, no libm, and no contraction to fused multiply-add (see CMakeLists.txt). A
// change of anything here changes the data and needs a new version in the digest.
#include "worker/data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/memory_dataset.h"
#include "worker/data/random.h"

namespace trainyard::data {
namespace {

constexpr uint64_t kGlyphKey = 0x676c797068732d31;  // "glyphs-1"

struct Point {
  double x = 0;  // to the right
  double y = 0;  // downwards
};

// A run of line segments, with at most kMaxPoints points.
constexpr size_t kMaxPoints = 13;
struct Stroke {
  std::array<Point, kMaxPoints> points;
  size_t count;
};

struct Figure {
  std::array<Stroke, 3> strokes;
  size_t count;
};

// The figures lie in a square of -1 to 1. Several share parts on purpose: they differ only in how
// the strokes meet.
constexpr std::array<Figure, kGlyphClasses> kFigures = {{
    // ring
    {{{{{{{0.85, 0},
          {0.736, 0.425},
          {0.425, 0.736},
          {0, 0.85},
          {-0.425, 0.736},
          {-0.736, 0.425},
          {-0.85, 0},
          {-0.736, -0.425},
          {-0.425, -0.736},
          {0, -0.85},
          {0.425, -0.736},
          {0.736, -0.425},
          {0.85, 0}}},
        13}}},
     1},
    // tee
    {{{{{{{-0.9, -0.9}, {0.9, -0.9}}}, 2}, {{{{0, -0.9}, {0, 1}}}, 2}}}, 2},
    // ell
    {{{{{{{-0.6, -1}, {-0.6, 0.9}, {0.8, 0.9}}}, 3}}}, 1},
    // cross
    {{{{{{{0, -1}, {0, 1}}}, 2}, {{{{-0.9, 0}, {0.9, 0}}}, 2}}}, 2},
    // fork
    {{{{{{{-0.8, -1}, {0, 0}, {0.8, -1}}}, 3}, {{{{0, 0}, {0, 1}}}, 2}}}, 2},
    // flag
    {{{{{{{-0.5, 1}, {-0.5, -1}, {0.4, -1}, {0.75, -0.5}, {0.4, 0}, {-0.5, 0}}}, 6}}}, 1},
    // ladder
    {{{{{{{-0.7, -1}, {-0.7, 1}}}, 2}, {{{{0.7, -1}, {0.7, 1}}}, 2}, {{{{-0.7, 0}, {0.7, 0}}}, 2}}},
     3},
    // zigzag
    {{{{{{{-0.8, -0.9}, {0.8, -0.9}, {-0.8, 0.9}, {0.8, 0.9}}}, 4}}}, 1},
    // hook
    {{{{{{{0.5, -1}, {0.5, 0.4}, {0.25, 0.85}, {-0.2, 0.95}, {-0.6, 0.6}}}, 5}}}, 1},
    // arrow
    {{{{{{{0, 1}, {0, -1}}}, 2}, {{{{-0.7, -0.35}, {0, -1}, {0.7, -0.35}}}, 3}}}, 2},
}};

// This is Taylor's series, for |x| < 1, with a remainder under 1e-7.
double Sine(double x) {
  const double s = x * x;
  return x * (1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72))));
}
double Cosine(double x) {
  const double s = x * x;
  return 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90))));
}

// x' = a x + b y + u, y' = c x + d y + v maps the unit square to pixels.
struct Affine {
  double a, b, c, d, u, v;

  Point operator()(Point p) const { return {a * p.x + b * p.y + u, c * p.x + d * p.y + v}; }
};

Affine DrawAffine(RandomStream& random) {
  const double angle = random.Between(-0.55, 0.55);
  const double scale_x = random.Between(4.6, 9.0);
  const double scale_y = scale_x * random.Between(0.8, 1.25);
  const double shear = random.Between(-0.35, 0.35);
  const double sine = Sine(angle);
  const double cosine = Cosine(angle);
  constexpr double kMiddle = (kGlyphSide - 1) / 2.0;
  // A larger figure has less room to move.
  const double room = 11.5 - std::max(scale_x, scale_y);
  const double reach = std::max(1.0, room);
  return {scale_x * cosine,
          scale_y * (shear * cosine - sine),
          scale_x * sine,
          scale_y * (shear * sine + cosine),
          kMiddle + random.Between(-reach, reach),
          kMiddle + random.Between(-reach, reach)};
}

// The share of each pixel that a stroke covers, 0 to 1.
using Coverage = std::array<double, kGlyphPixels>;

int Pixel(double coordinate) {
  return static_cast<int>(std::clamp(coordinate, 0.0, kGlyphSide - 1.0));
}

// Draws a segment with round ends. `radius` is in pixels, edges are one pixel soft, and `strength`
// is the value where it is full.
void DrawSegment(Point from, Point to, double radius, double strength, Coverage& coverage) {
  const double reach = radius + 0.5;
  const int left = Pixel(std::min(from.x, to.x) - reach);
  const int right = Pixel(std::max(from.x, to.x) + reach + 1);
  const int top = Pixel(std::min(from.y, to.y) - reach);
  const int bottom = Pixel(std::max(from.y, to.y) + reach + 1);
  const double dx = to.x - from.x;
  const double dy = to.y - from.y;
  const double inverse = 1 / std::max(dx * dx + dy * dy, 1e-9);
  for (int y = top; y <= bottom; ++y) {
    double* row = &coverage[static_cast<size_t>(y) * kGlyphSide];
    for (int x = left; x <= right; ++x) {
      const double px = x - from.x;
      const double py = y - from.y;
      const double along = std::clamp((px * dx + py * dy) * inverse, 0.0, 1.0);
      const double ex = px - along * dx;
      const double ey = py - along * dy;
      const double square = ex * ex + ey * ey;
      if (square >= reach * reach) continue;
      const double covered = std::min(1.0, reach - std::sqrt(square));
      row[x] = std::max(row[x], strength * covered);
    }
  }
}

void DrawFigure(const Figure& figure, RandomStream& random, Coverage& coverage) {
  const Affine affine = DrawAffine(random);
  const double radius = random.Between(0.5, 1.3);
  constexpr double kJitter = 0.12;
  for (size_t s = 0; s < figure.count; ++s) {
    const Stroke& stroke = figure.strokes[s];
    std::array<Point, kMaxPoints> points;
    for (size_t i = 0; i < stroke.count; ++i) {
      const double jitter_x = random.Between(-kJitter, kJitter);
      const double jitter_y = random.Between(-kJitter, kJitter);
      points[i] = affine({stroke.points[i].x + jitter_x, stroke.points[i].y + jitter_y});
    }
    for (size_t i = 0; i + 1 < stroke.count; ++i) {
      DrawSegment(points[i], points[i + 1], radius, 1.0, coverage);
    }
  }
}

// Draws short strokes that belong to no figure.
void DrawClutter(RandomStream& random, Coverage& coverage) {
  const uint64_t count = 2 + random.Below(3);
  for (uint64_t i = 0; i < count; ++i) {
    const Point from = {random.Between(0, kGlyphSide), random.Between(0, kGlyphSide)};
    const double dx = random.Between(-5, 5);
    const double dy = random.Between(-5, 5);
    const double radius = random.Between(0.4, 0.9);
    DrawSegment(from, {from.x + dx, from.y + dy}, radius, random.Between(0.4, 0.9), coverage);
  }
}

// Adds a background with a slope, ink of varying contrast, and noise with a triangular
// distribution.
void Develop(RandomStream& random, const Coverage& coverage, absl::Span<uint8_t> pixels) {
  const double background = random.Between(20, 110);
  const double slope_x = random.Between(-1.5, 1.5);
  const double slope_y = random.Between(-1.5, 1.5);
  const double contrast = random.Between(70, 145);
  const double noise = random.Between(0.04, 0.14);  // in grey levels per unit of the byte pair
  constexpr int kMiddle = kGlyphSide / 2;
  uint64_t bits = 0;
  for (int i = 0; i < kGlyphPixels; ++i) {
    if (i % 4 == 0) bits = random.Next();
    const int pair = static_cast<int>(bits & 0xff) + static_cast<int>((bits >> 8) & 0xff) - 255;
    bits >>= 16;
    const int x = i % kGlyphSide - kMiddle;
    const int y = i / kGlyphSide - kMiddle;
    const double value = background + slope_x * x + slope_y * y +
                         contrast * coverage[static_cast<size_t>(i)] + noise * pair;
    pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
  }
}

}  // namespace

void DrawGlyph(Split split, int64_t index, absl::Span<uint8_t> pixels) {
  TY_CHECK(static_cast<int64_t>(pixels.size()) == kGlyphPixels);
  const uint64_t split_key = Mix64(kGlyphKey + (split == Split::kTrain ? 1 : 2));
  RandomStream random(Mix64(split_key + static_cast<uint64_t>(index)));
  Coverage coverage{};
  DrawClutter(random, coverage);
  DrawFigure(kFigures[static_cast<size_t>(GlyphLabel(index))], random, coverage);
  Develop(random, coverage, pixels);
}

std::unique_ptr<Dataset> MakeGlyphs(Split split, int64_t size) {
  TY_CHECK(size >= 1);
  MemoryDataset::Content content;
  content.sample_shape = {1, kGlyphSide, kGlyphSide};
  content.classes = kGlyphClasses;
  content.digest =
      absl::StrCat("glyphs-v1:split=", split == Split::kTrain ? "train" : "test", ",size=", size);
  content.pixels.resize(static_cast<size_t>(size * kGlyphPixels));
  content.labels.resize(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    DrawGlyph(split, i,
              absl::MakeSpan(content.pixels)
                  .subspan(static_cast<size_t>(i * kGlyphPixels), kGlyphPixels));
    content.labels[static_cast<size_t>(i)] = static_cast<uint8_t>(GlyphLabel(i));
  }
  return std::make_unique<MemoryDataset>(std::move(content));
}

}  // namespace trainyard::data
