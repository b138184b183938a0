// Writes a stack of layers in the order in which they compute, as GraphBuilder does for graphs.
//
//   StackWriter writer({1, 28, 28});
//   LayerId x = writer.Conv2d("conv1", writer.sample(), {.channels = 32});
//   writer.Linear("fc", writer.Flatten(writer.Relu(x)), 10);
//   layers::Stack stack = std::move(writer).Finish();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layers/stack.h"

namespace trainyard::networks {

// Names what a layer reads: the sample, or a layer before it.
using LayerId = int;

class StackWriter {
 public:
  explicit StackWriter(std::vector<int64_t> input, int64_t vocabulary = 0);

  LayerId sample() const;
  // Layers with weights are given the names of their modules in PyTorch.
  LayerId Add(layers::Kind kind, const std::vector<LayerId>& from, std::string name = "");
  LayerId Conv2d(std::string name, LayerId x, const layers::Conv2d& conv);
  LayerId Linear(std::string name, LayerId x, int64_t features);
  LayerId BatchNorm(std::string name, LayerId x, const layers::BatchNorm& norm = {});
  LayerId Relu(LayerId x);
  LayerId Sum(LayerId a, LayerId b);
  LayerId MaxPool(LayerId x, const layers::MaxPool& pool);
  LayerId GlobalAvgPool(LayerId x);
  LayerId Flatten(LayerId x);
  LayerId Dropout(LayerId x, double rate);

  layers::Stack Finish() &&;

 private:
  layers::Stack stack_;
};

}  // namespace trainyard::networks
