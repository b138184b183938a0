// Random changes of training samples: which part of the image is seen, mirrored or not, its
// colours, a part hidden. Each is a pure function of (seed, epoch, sample), so neither the number
// of devices nor a resume changes what the network sees.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/stored_row.h"

namespace trainyard::data {

// Applied in this order. The default changes nothing.
struct Augmentation {
  // A part of an area between these fractions of the image's and of a shape between 3:4 and 4:3,
  // scaled to the sample (Szegedy et al. 2015, "Going deeper with convolutions"); max 0: none.
  double min_area = 0;
  double max_area = 0;
  // Pad with so many black pixels on each side, then cut the sample's size out at random.
  int64_t pad_crop = 0;
  // Mirror left to right, one time in two.
  bool flip = false;
  // Factors between 1 - x (0 at least) and 1 + x, in random order, as torchvision's ColorJitter.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  // All hues are turned by as much as this part of the circle, this way or that; 0.5 at most. In
  // random order with the three above. Needs 3 channels.
  double hue = 0;
  // Side of a square around a random pixel that gets the mean (DeVries & Taylor 2017, "Improved
  // regularization of convolutional neural networks with cutout").
  int64_t cutout = 0;

  bool changes_framing() const { return max_area > 0 || pad_crop > 0 || flip; }
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// The key that all random choices about one sample in one epoch follow from.
uint64_t SampleKey(uint64_t seed, int64_t epoch, int64_t index);

// The part of an image that becomes a sample, in pixels from its upper left corner. What reaches
// over the border is black.
struct Framing {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  bool flip = false;

  friend bool operator==(const Framing&, const Framing&) = default;
};

// The framing that training sees of an image of `width` x `height` of which evaluation sees `base`
// and that becomes a sample of `out_width` x `out_height`.
Framing DrawFraming(const Augmentation& augmentation, uint64_t key, int64_t width, int64_t height,
                    const Framing& base, int64_t out_width, int64_t out_height);

// Brightness, contrast, saturation and hue of `pixels` [C, H, W] in [0, 1]. The last two need 3
// channels.
void JitterColor(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
                 absl::Span<float> pixels);

// True where DrawStoredRow can tell all that the augmentation does to images of this shape [C, H,
// W]: colours and parts of an area cannot be told, nor can sides or shifts of thousands of pixels.
bool IsStoredRow(const Augmentation& augmentation, const std::vector<int64_t>& shape);

// What training sees of the stored image `image` [C, H, W]: the same choices as DrawFraming and
// CutOut make. IsStoredRow must hold.
StoredRow DrawStoredRow(const Augmentation& augmentation, uint64_t key,
                        const std::vector<int64_t>& shape, int64_t image);

// Sets the square of `pixels` [C, H, W] to 0, which is the mean once they are normalised.
void CutOut(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
            absl::Span<float> pixels);

}  // namespace trainyard::data
