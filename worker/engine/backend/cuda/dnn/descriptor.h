// Owns cuDNN's descriptors: makes them from typed attributes, finalizes them and destroys them.
// Every failure is a Status that names the descriptor and carries cuDNN's own last message.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::engine::cuda::dnn {

// Returns OK for success, otherwise `what: <cuDNN's message>`. The code follows cuDNN's category:
// INVALID_ARGUMENT for bad parameters, UNIMPLEMENTED for what is not supported, RESOURCE_EXHAUSTED
// for memory, UNAVAILABLE for a library that is not initialised, and INTERNAL for all others.
absl::Status StatusOf(cudnnStatus_t status, absl::string_view what);

// The name of a C++ type among cuDNN's types of attributes.
template <typename T>
struct AttributeType;
template <>
struct AttributeType<int64_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_INT64;
};
template <>
struct AttributeType<int32_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_INT32;
};
template <>
struct AttributeType<bool> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_BOOLEAN;
};
template <>
struct AttributeType<float> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_FLOAT;
};
template <>
struct AttributeType<double> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_DOUBLE;
};
template <>
struct AttributeType<char> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_CHAR;
};
template <>
struct AttributeType<cudnnDataType_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_DATA_TYPE;
};
template <>
struct AttributeType<cudnnHandle_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_HANDLE;
};
template <>
struct AttributeType<cudnnConvolutionMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_CONVOLUTION_MODE;
};
template <>
struct AttributeType<cudnnBackendHeurMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_HEUR_MODE;
};
template <>
struct AttributeType<cudnnBackendNumericalNote_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_NUMERICAL_NOTE;
};
template <>
struct AttributeType<cudnnBackendBehaviorNote_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_BEHAVIOR_NOTE;
};
template <>
struct AttributeType<cudnnBackendKnobType_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_KNOB_TYPE;
};
template <>
struct AttributeType<cudnnPointwiseMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_POINTWISE_MODE;
};
template <>
struct AttributeType<cudnnGenStatsMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_GENSTATS_MODE;
};
template <>
struct AttributeType<cudnnReduceTensorOp_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
};
template <>
struct AttributeType<cudnnBackendNormMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_NORM_MODE;
};
template <>
struct AttributeType<cudnnBackendNormFwdPhase_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_NORM_FWD_PHASE;
};
template <>
struct AttributeType<cudnnResampleMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_RESAMPLE_MODE;
};
template <>
struct AttributeType<cudnnPaddingMode_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_PADDING_MODE;
};
template <>
struct AttributeType<cudnnFraction_t> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_FRACTION;
};
template <>
struct AttributeType<void*> {
  static constexpr cudnnBackendAttributeType_t value = CUDNN_TYPE_VOID_PTR;
};

class Descriptor;

// One attribute with its value or values.
class Attribute {
 public:
  template <typename T>
  Attribute(cudnnBackendAttributeName_t name, const T& value)
      : Attribute(name, AttributeType<T>::value, 1, std::as_bytes(std::span(&value, 1))) {}
  template <typename T>
  Attribute(cudnnBackendAttributeName_t name, const std::vector<T>& values)
      : Attribute(name, AttributeType<T>::value, values.size(), std::as_bytes(std::span(values))) {}
  // The text is stored without a closing zero.
  Attribute(cudnnBackendAttributeName_t name, const std::string& text)
      : Attribute(name, CUDNN_TYPE_CHAR, text.size(), std::as_bytes(std::span(text))) {}
  Attribute(cudnnBackendAttributeName_t name, const Descriptor& descriptor);
  // The descriptors stay the property of their owner.
  static Attribute Descriptors(cudnnBackendAttributeName_t name,
                               const std::vector<cudnnBackendDescriptor_t>& descriptors) {
    return Attribute(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, descriptors.size(),
                     std::as_bytes(std::span(descriptors)));
  }

 private:
  friend class Descriptor;
  Attribute(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
            std::span<const std::byte> values)
      : name_(name),
        type_(type),
        count_(static_cast<int64_t>(count)),
        bytes_(values.begin(), values.end()) {}

  cudnnBackendAttributeName_t name_;
  cudnnBackendAttributeType_t type_;
  int64_t count_;
  std::vector<std::byte> bytes_;
};

// Owns one of cuDNN's descriptors. It can be moved, and is empty when default-made or moved from.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), name_(std::move(other.name_)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  // Creates a descriptor without attributes. `name` is for messages: "forward convolution".
  static absl::StatusOr<Descriptor> Create(cudnnBackendDescriptorType_t type,
                                           absl::string_view name);
  // Creates a descriptor, sets its attributes and finalizes it.
  static absl::StatusOr<Descriptor> Make(cudnnBackendDescriptorType_t type, absl::string_view name,
                                         const std::vector<Attribute>& attributes);

  absl::Status Set(const Attribute& attribute);
  absl::Status Finalize();

  // Returns the only value, or an error if there is none.
  template <typename T>
  absl::StatusOr<T> Get(cudnnBackendAttributeName_t attribute) const {
    T value = {};
    int64_t count = 0;
    const absl::Status status = GetRaw(attribute, AttributeType<T>::value, 1, &count, &value);
    if (!status.ok()) {
      return status;
    }
    return value;
  }
  // Returns all values, however many there are.
  template <typename T>
  absl::StatusOr<std::vector<T>> GetAll(cudnnBackendAttributeName_t attribute) const {
    int64_t count = 0;
    absl::Status status = GetRaw(attribute, AttributeType<T>::value, 0, &count, nullptr);
    if (!status.ok()) {
      return status;
    }
    std::vector<T> values(static_cast<size_t>(count));
    if (count > 0) {
      status = GetRaw(attribute, AttributeType<T>::value, count, &count, values.data());
      if (!status.ok()) {
        return status;
      }
      values.resize(static_cast<size_t>(count));
    }
    return values;
  }
  absl::StatusOr<std::string> GetText(cudnnBackendAttributeName_t attribute) const;
  // Returns the descriptors of the given type, at most `max`.
  absl::StatusOr<std::vector<Descriptor>> GetDescriptors(cudnnBackendAttributeName_t attribute,
                                                         cudnnBackendDescriptorType_t type,
                                                         absl::string_view name, int64_t max) const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  Descriptor(cudnnBackendDescriptor_t descriptor, absl::string_view name)
      : descriptor_(descriptor), name_(name) {}
  absl::Status GetRaw(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                      int64_t requested, int64_t* count, void* values) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  std::string name_;
};

}  // namespace trainyard::engine::cuda::dnn
