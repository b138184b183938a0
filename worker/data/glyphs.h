// Generates `glyphs`: ten stroke figures, drawn into 28x28 grey pixels, in which everything varies
// that does not change which figure it is. The data set needs no download, and a convolutional
// network reads it far better than a linear classifier.
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
inline constexpr int64_t kGlyphPixels = int64_t{kGlyphSide} * kGlyphSide;
inline constexpr int64_t kGlyphClasses = datasets::kGlyphs.classes;

// Returns the sample's class. The classes take turns, so every size that is a multiple of ten is
// balanced.
constexpr int64_t GlyphLabel(int64_t index) {
  return index % kGlyphClasses;
}

// Draws the sample `index` of the split. `pixels` has kGlyphPixels bytes, row by row. This is a
// pure function of its arguments with the same bytes on every machine.
void DrawGlyph(Split split, int64_t index, absl::Span<uint8_t> pixels);

// Returns a whole split in memory. 1 <= size.
std::unique_ptr<Dataset> MakeGlyphs(Split split, int64_t size);

}  // namespace trainyard::data
