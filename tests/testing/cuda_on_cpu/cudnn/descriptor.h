// Backend descriptors: attributes by name, checked against a table, and frozen when finalized.
//
// A descriptor shares what it refers to, and never copies it. As in cuDNN, a descriptor may be
// destroyed while others refer to it. It is not thread-safe until it is finalized, and immutable
// from then on.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/status.h"

namespace trainyard::cuda_on_cpu::cudnn {

struct Descriptor;
struct Operation;
struct Program;
struct Engine;

// An attribute that was set, by the caller or when its descriptor was finalized.
struct Value {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::vector<std::byte> bytes;                             // plain types
  std::vector<std::shared_ptr<const Descriptor>> children;  // CUDNN_TYPE_BACKEND_DESCRIPTOR
};

struct Descriptor {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool is_finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values;
  // The results of finalizing it.
  std::shared_ptr<const Operation> operation;  // for an operation
  // Set for an operation graph, and for everything made from one.
  std::shared_ptr<const Program> program;
  const Engine* engine = nullptr;  // for an engine, and everything made from one

  bool Has(cudnnBackendAttributeName_t name) const { return values.count(name) != 0; }
  // These read integers and enumerations: the first element, or `fallback` if it was not set.
  int64_t Int(cudnnBackendAttributeName_t name, int64_t fallback) const;
  std::vector<int64_t> Ints(cudnnBackendAttributeName_t name) const;
  // Reads a float or double.
  double Number(cudnnBackendAttributeName_t name, double fallback) const;
  std::vector<void*> Pointers(cudnnBackendAttributeName_t name) const;
  std::string Text(cudnnBackendAttributeName_t name) const;
  // Returns null if the attribute was not set.
  const Descriptor* Child(cudnnBackendAttributeName_t name) const;
  std::shared_ptr<const Descriptor> SharedChild(cudnnBackendAttributeName_t name) const;

  void SetInts(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t value_type,
               const std::vector<int64_t>& elements);
  void SetText(cudnnBackendAttributeName_t name, const std::string& text);
  void SetChildren(cudnnBackendAttributeName_t name,
                   std::vector<std::shared_ptr<const Descriptor>> children);
};

// The bytes of one element; 0 for types that no attribute has.
int64_t ElementBytes(cudnnBackendAttributeType_t type);

// Checks that all required attributes are set, compiles operations and graphs, and freezes the
// descriptor.
cudnnStatus_t Finalize(Descriptor* descriptor);

// Returns the descriptor behind a caller's handle, or null if it is not one.
Descriptor* BodyOf(cudnnBackendDescriptor_t handle);
std::shared_ptr<const Descriptor> SharedBodyOf(cudnnBackendDescriptor_t handle);

}  // namespace trainyard::cuda_on_cpu::cudnn
