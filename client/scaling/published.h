// Figures that others have published for networks of the same kind, to stand beside ours.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::scaling {

struct Published {
  struct Point {
    int devices = 0;
    double speed_up = 0;  // against one device
  };
  std::string what;  // a sentence
  std::vector<Point> points;
};

// `model`: as a spec names it, "wide_resnet". Null where there are none.
const Published* PublishedFor(absl::string_view model);

}  // namespace trainyard::scaling
