// Declares figures that others have published for networks of the same kind, for comparison with
// ours.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::scaling {

struct Published {
  struct Point {
    int devices = 0;
    double speed_up = 0;  // compared with one device
  };
  std::string what;  // a sentence
  std::vector<Point> points;
};

// `model` is the name of a model in specs, such as "wide_resnet". Returns null if nothing was
// published.
const Published* PublishedFor(absl::string_view model);

}  // namespace trainyard::scaling
