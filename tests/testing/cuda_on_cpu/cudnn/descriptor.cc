// Storing, converting and reading the values of attributes.
#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

template <typename T>
T ElementAt(const Value& value, int64_t index) {
  T element;
  std::memcpy(&element, value.bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return element;
}

const Value* FindValue(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const auto found = descriptor.values.find(name);
  return found == descriptor.values.end() ? nullptr : &found->second;
}

}  // namespace

int64_t ElementBytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_FRACTION:
      return sizeof(cudnnFraction_t);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // float, int32 and all enumerations
  }
}

std::vector<int64_t> Descriptor::Ints(cudnnBackendAttributeName_t name) const {
  const Value* value = FindValue(*this, name);
  std::vector<int64_t> elements;
  for (int64_t i = 0; value != nullptr && i < value->count; ++i) {
    if (value->type == CUDNN_TYPE_FRACTION) {
      const auto fraction = ElementAt<cudnnFraction_t>(*value, i);
      elements.push_back(fraction.denominator == 0 ? 0 : fraction.numerator / fraction.denominator);
      continue;
    }
    switch (ElementBytes(value->type)) {
      case 1:
        elements.push_back(ElementAt<int8_t>(*value, i));
        break;
      case 4:
        elements.push_back(ElementAt<int32_t>(*value, i));
        break;
      default:
        elements.push_back(ElementAt<int64_t>(*value, i));
    }
  }
  return elements;
}

int64_t Descriptor::Int(cudnnBackendAttributeName_t name, int64_t fallback) const {
  const std::vector<int64_t> elements = Ints(name);
  return elements.empty() ? fallback : elements.front();
}

double Descriptor::Number(cudnnBackendAttributeName_t name, double fallback) const {
  const Value* value = FindValue(*this, name);
  if (value == nullptr || value->count == 0) {
    return fallback;
  }
  return value->type == CUDNN_TYPE_FLOAT ? static_cast<double>(ElementAt<float>(*value, 0))
                                         : ElementAt<double>(*value, 0);
}

std::vector<void*> Descriptor::Pointers(cudnnBackendAttributeName_t name) const {
  const Value* value = FindValue(*this, name);
  std::vector<void*> elements;
  for (int64_t i = 0; value != nullptr && i < value->count; ++i) {
    elements.push_back(ElementAt<void*>(*value, i));
  }
  return elements;
}

std::string Descriptor::Text(cudnnBackendAttributeName_t name) const {
  const Value* value = FindValue(*this, name);
  if (value == nullptr) {
    return "";
  }
  std::string text(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
  // Callers may count the terminating zero or not.
  while (!text.empty() && text.back() == '\0') {
    text.pop_back();
  }
  return text;
}

std::shared_ptr<const Descriptor> Descriptor::SharedChild(cudnnBackendAttributeName_t name) const {
  const Value* value = FindValue(*this, name);
  return value == nullptr || value->children.empty() ? nullptr : value->children.front();
}

const Descriptor* Descriptor::Child(cudnnBackendAttributeName_t name) const {
  return SharedChild(name).get();
}

void Descriptor::SetInts(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t value_type,
                         const std::vector<int64_t>& elements) {
  Value value;
  value.type = value_type;
  value.count = static_cast<int64_t>(elements.size());
  const auto bytes = static_cast<size_t>(ElementBytes(value_type));
  TY_CHECK(bytes == 1 || bytes == 4 || bytes == 8);
  for (const int64_t element : elements) {
    // The machine is little-endian: the low bytes come first.
    const auto* begin = reinterpret_cast<const std::byte*>(&element);
    value.bytes.insert(value.bytes.end(), begin, begin + bytes);
  }
  values[name] = std::move(value);
}

void Descriptor::SetText(cudnnBackendAttributeName_t name, const std::string& text) {
  Value value;
  value.type = CUDNN_TYPE_CHAR;
  value.count = static_cast<int64_t>(text.size());
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  value.bytes.assign(begin, begin + text.size());
  values[name] = std::move(value);
}

void Descriptor::SetChildren(cudnnBackendAttributeName_t name,
                             std::vector<std::shared_ptr<const Descriptor>> children) {
  Value value;
  value.type = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  value.count = static_cast<int64_t>(children.size());
  value.children = std::move(children);
  values[name] = std::move(value);
}

}  // namespace trainyard::cuda_on_cpu::cudnn
