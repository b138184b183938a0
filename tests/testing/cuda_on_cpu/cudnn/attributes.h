// The attributes that each kind of descriptor has.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <vector>

namespace trainyard::cuda_on_cpu::cudnn {

struct AttributeRule {
  enum class Use { kRequired, kOptional, kComputed };  // computed: may be read only
  cudnnBackendAttributeName_t name;
  const char* label;
  cudnnBackendAttributeType_t type;
  Use use;
  int64_t count_max;  // it takes 1 to this many elements
  // Another type with which it may be set. It equals `type` if there is none.
  cudnnBackendAttributeType_t other_type;
};

struct DescriptorRule {
  cudnnBackendDescriptorType_t type;
  const char* label;
  std::vector<AttributeRule> attributes;

  // Returns null if the descriptor has no such attribute.
  const AttributeRule* Find(cudnnBackendAttributeName_t name) const;
};

// Returns null for kinds that the emulation does not have.
const DescriptorRule* RuleOf(cudnnBackendDescriptorType_t type);

}  // namespace trainyard::cuda_on_cpu::cudnn
