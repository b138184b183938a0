// `glyphs`: ten stroke figures, drawn into 28x28 grey pixels with everything varied that does not
// change which figure it is. A data set that needs no download, and that a convolution reads far
// better than a linear classifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "common/datasets.h"
#include "worker/data/dataset.h"

namespace trainyard::data {

inline constexpr int kGlyphSide = datasets::kGlyphs.side;
inline constexpr int64_t kGlyphPixels = kGlyphSide * kGlyphSide;
inline constexpr int64_t kGlyphClasses = datasets::kGlyphs.classes;

// The sample's class: the classes take turns, so every size that is a multiple of ten is balanced.
constexpr int64_t GlyphLabel(int64_t index) {
  return index % kGlyphClasses;
}

// Draws the sample `index` of the split: `pixels` has kGlyphPixels bytes, row by row. A pure
// function of its arguments with the same bytes on every machine.
void DrawGlyph(Split split, int64_t index, absl::Span<uint8_t> pixels);

// All of a split in memory; 1 <= size.
std::unique_ptr<Dataset> MakeGlyphs(Split split, int64_t size);

}  // namespace trainyard::data
