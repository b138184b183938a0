// Backend descriptors: attributes by name, checked against a table, frozen when finalized.
//
// What a descriptor refers to is shared, never copied: a descriptor may be destroyed while others
// refer to it, as in cuDNN. Not thread-safe until finalized, immutable from then on.
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
  // What it was compiled to when finalized.
  std::shared_ptr<const Operation> operation;  // of an operation
  std::shared_ptr<const Program> program;      // of an operation graph, and all made from one
  const Engine* engine = nullptr;              // of an engine, and all made from one

  bool Has(cudnnBackendAttributeName_t name) const { return values.count(name) != 0; }
  // Of integers and enumerations. The first element, or `fallback` where it was not set.
  int64_t Int(cudnnBackendAttributeName_t name, int64_t fallback) const;
  std::vector<int64_t> Ints(cudnnBackendAttributeName_t name) const;
  // Of float or double.
  double Number(cudnnBackendAttributeName_t name, double fallback) const;
  std::vector<void*> Pointers(cudnnBackendAttributeName_t name) const;
  std::string Text(cudnnBackendAttributeName_t name) const;
  // Null where it was not set.
  const Descriptor* Child(cudnnBackendAttributeName_t name) const;
  std::shared_ptr<const Descriptor> SharedChild(cudnnBackendAttributeName_t name) const;

  void SetInts(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t value_type,
               const std::vector<int64_t>& elements);
  void SetText(cudnnBackendAttributeName_t name, const std::string& text);
  void SetChildren(cudnnBackendAttributeName_t name,
                   std::vector<std::shared_ptr<const Descriptor>> children);
};

// Bytes of one element. 0 for types that no attribute has.
int64_t ElementBytes(cudnnBackendAttributeType_t type);

// Checks that all required attributes are there, compiles what has a meaning of its own, and
// freezes the descriptor.
cudnnStatus_t Finalize(Descriptor* descriptor);

// The descriptor behind a caller's handle; null for what is none.
Descriptor* BodyOf(cudnnBackendDescriptor_t handle);
std::shared_ptr<const Descriptor> SharedBodyOf(cudnnBackendDescriptor_t handle);

}  // namespace trainyard::cuda_on_cpu::cudnn
