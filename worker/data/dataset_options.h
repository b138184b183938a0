// Defines the options with which a data set is opened. One struct has those of all kinds, so that a
// spec can be converted to them before it is known which kind it names.
#pragma once

#include <cstdint>
#include <string>

#include "common/datasets.h"

namespace trainyard::data {

struct DatasetOptions {
  std::string dataset_dir;
  // The numbers of samples. 0 means all of them, or for glyphs the default.
  int64_t train_size = 0;
  int64_t test_size = 0;
  // Decides which samples are taken if not all are (subset.h).
  uint64_t subset_seed = 0;
  // For images and tokens: their folder in `dataset_dir`.
  std::string path = {};
  // For images: the side of a sample, and the shorter side of the image from whose middle
  // evaluation takes it. 0 means 8/7 of the sample.
  int64_t image_size = datasets::kDefaultImageSize;
  int64_t resize = 0;
  // For tokens, from the model: the tokens of a sample, and the number of different tokens. 0 means
  // as many as the file's numbers can represent.
  int64_t context = 0;
  int64_t vocabulary = 0;
};

}  // namespace trainyard::data
