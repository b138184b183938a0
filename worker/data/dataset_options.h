// The options with which a data set is opened: those of all kinds in one struct, so that a spec can
// be turned into them before anybody knows which kind it names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/datasets.h"

namespace trainyard::data {

struct DatasetOptions {
  std::string dataset_dir;
  // glyphs only: numbers of samples; 0 for the default.
  int64_t train_size = 0;
  int64_t test_size = 0;
  // images and tokens: their folder in `dataset_dir`.
  std::string path = {};
  // images only: the side of a sample, and the shorter side of the image from whose middle
  // evaluation takes it; 0 for 8/7 of the sample.
  int64_t image_size = datasets::kDefaultImageSize;
  int64_t resize = 0;
  // Token data only, from the model: tokens of a sample, and the number of different ones, 0 for as
  // many as the file's numbers can tell apart.
  int64_t context = 0;
  int64_t vocabulary = 0;
};

// True for a path that lies below the folder of data sets, and does not lead out of it.
bool StaysBelow(absl::string_view path);

}  // namespace trainyard::data
