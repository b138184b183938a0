// Holds the published figures, with their sources.
#include "client/scaling/published.h"

#include <map>

namespace trainyard::scaling {

const Published* PublishedFor(absl::string_view model) {
  static const auto* figures = new std::map<std::string, Published, std::less<>>{
      {"wide_resnet",
       {"Wide ResNet on CIFAR-10 with Torch's DataParallelTable: 3.33x on 4 GPUs", {{4, 3.33}}}},
      {"alexnet",
       {"AlexNet on ImageNet, data parallel: 1.7x, 3.5x and 6.2x on 2, 4 and 8 GPUs",
        {{2, 1.7}, {4, 3.5}, {8, 6.2}}}},
      {"googlenet",
       {"GoogLeNet on CIFAR-10, one batch of 128 over two Titan X and a GTX 1080: from 5:25 to "
        "2:23, 2.27x on 3 unequal GPUs",
        {{3, 2.27}}}},
  };
  const auto found = figures->find(model);
  return found == figures->end() ? nullptr : &found->second;
}

}  // namespace trainyard::scaling
