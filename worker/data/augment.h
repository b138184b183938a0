// Draws random changes of training samples: which part of the image is seen, whether it is
// mirrored, its colours, and a hidden part. Each is a pure function of (seed, epoch, sample), so
// neither the number of devices nor a resume changes what the network sees.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/stored_row.h"

namespace trainyard::data {

// The changes, which are applied in this order. The default changes nothing.
struct Augmentation {
  // A part of the image with an area between these fractions of the image's and a shape between 3:4
  // and 4:3, scaled to the sample (Szegedy et al. 2015, "Going deeper with convolutions"). A
  // maximum of 0 means none.
  double min_area = 0;
  double max_area = 0;
  // Pads with this many black pixels on each side, then cuts out the sample's size at random.
  int64_t pad_crop = 0;
  // Mirrors left to right, one time in two.
  bool flip = false;
  // Factors between 1 - x (at least 0) and 1 + x, in random order, as in torchvision's ColorJitter.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  // Turns all hues by at most this part of the circle, in either direction; at most 0.5. It is
  // applied in random order with the three above, and needs 3 channels.
  double hue = 0;
  // The side of a square around a random pixel that is replaced by the mean (DeVries & Taylor 2017,
  // "Improved regularization of convolutional neural networks with cutout").
  int64_t cutout = 0;

  bool changes_framing() const { return max_area > 0 || pad_crop > 0 || flip; }
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// Returns the key from which all random choices about one sample in one epoch follow.
uint64_t SampleKey(uint64_t seed, int64_t epoch, int64_t index);

// The part of an image that becomes a sample, in pixels from its upper left corner. Parts beyond
// the border are black.
struct Framing {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
  bool flip = false;

  friend bool operator==(const Framing&, const Framing&) = default;
};

// Draws the framing that training sees of an image of `width` x `height`, of which evaluation sees
// `base` and which becomes a sample of `out_width` x `out_height`.
Framing DrawFraming(const Augmentation& augmentation, uint64_t key, int64_t width, int64_t height,
                    const Framing& base, int64_t out_width, int64_t out_height);

// Changes brightness, contrast, saturation and hue of `pixels` [C, H, W] in [0, 1]. The last two
// need 3 channels.
void JitterColor(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
                 absl::Span<float> pixels);

// Returns true if a StoredRow can express all that the augmentation does to images of this shape
// [C, H, W]. It cannot express changes of colour and parts of an area, nor sides or shifts of
// thousands of pixels.
bool IsStoredRow(const Augmentation& augmentation, const std::vector<int64_t>& shape);

// Returns what training sees of the stored image `image` [C, H, W], with the same choices as
// DrawFraming and CutOut. IsStoredRow must be true.
StoredRow DrawStoredRow(const Augmentation& augmentation, uint64_t key,
                        const std::vector<int64_t>& shape, int64_t image);

// Sets the square of `pixels` [C, H, W] to 0, which is the mean once they are normalised.
void CutOut(const Augmentation& augmentation, uint64_t key, const std::vector<int64_t>& shape,
            absl::Span<float> pixels);

}  // namespace trainyard::data
