// The calls that create, fill, finalize and read backend descriptors.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/attributes.h"
#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"
#include "tests/testing/cuda_on_cpu/cudnn/handle.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

// The object behind a caller's descriptor. Reading an attribute replaces its body.
struct Holder {
  std::shared_ptr<Descriptor> body;
};

// The descriptors that are alive, by which other pointers are recognised as wrong.
class Holders {
 public:
  static Holders& Get() {
    static auto& holders = *new Holders();
    return holders;
  }
  Holder* Add(std::shared_ptr<Descriptor> body) {
    auto* holder = new Holder{std::move(body)};
    std::lock_guard lock(mutex_);
    living_.insert(holder);
    return holder;
  }
  // Returns null for anything but a living descriptor.
  Holder* Find(void* handle) {
    std::lock_guard lock(mutex_);
    return living_.count(handle) == 0 ? nullptr : static_cast<Holder*>(handle);
  }
  bool Remove(void* handle) {
    std::lock_guard lock(mutex_);
    return living_.erase(handle) != 0;
  }

 private:
  std::mutex mutex_;
  std::set<void*> living_;
};

std::string LabelOf(cudnnBackendDescriptorType_t type) {
  const DescriptorRule* rule = RuleOf(type);
  return rule == nullptr ? absl::StrCat("descriptor of kind ", type) : rule->label;
}

cudnnStatus_t FindRule(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                       const AttributeRule** rule) {
  *rule = RuleOf(descriptor.type)->Find(name);
  if (*rule == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(LabelOf(descriptor.type), " has no attribute ", name));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t ReadChildren(const AttributeRule& rule, int64_t count, const void* elements,
                           Value* value) {
  const auto* handles = static_cast<const cudnnBackendDescriptor_t*>(elements);
  for (int64_t i = 0; i < count; ++i) {
    std::shared_ptr<const Descriptor> child = SharedBodyOf(handles[i]);
    if (child == nullptr) {
      return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  absl::StrCat(rule.label, ": element ", i, " is no descriptor"));
    }
    if (!child->is_finalized) {
      return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                  absl::StrCat(rule.label, ": element ", i, " is not finalized"));
    }
    value->children.push_back(std::move(child));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t WriteChildren(const AttributeRule& rule, const Value& value, int64_t count,
                            void* elements) {
  const auto* handles = static_cast<const cudnnBackendDescriptor_t*>(elements);
  for (int64_t i = 0; i < count; ++i) {
    Holder* holder = Holders::Get().Find(handles[i]);
    const auto& child = value.children[static_cast<size_t>(i)];
    if (holder == nullptr) {
      return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  absl::StrCat(rule.label, ": element ", i, " is no descriptor to read into"));
    }
    if (holder->body->type != child->type) {
      return Fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                  absl::StrCat(rule.label, ": element ", i, " is a ", LabelOf(holder->body->type),
                               ", expected a ", LabelOf(child->type)));
    }
    // The body is finalized, so nothing can change it through this handle.
    holder->body = std::const_pointer_cast<Descriptor>(child);
  }
  return CUDNN_STATUS_SUCCESS;
}

// Returns true if the attribute may be set now, with this type and count.
cudnnStatus_t CheckSet(const AttributeRule& rule, const Descriptor& descriptor,
                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  if (descriptor.is_finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(rule.label, " was set after the descriptor was finalized"));
  }
  if (rule.use == AttributeRule::Use::kComputed) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(rule.label, " can be read only"));
  }
  if (type != rule.type && type != rule.other_type) {
    return Fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                absl::StrCat(rule.label, " was set with type ", type, ", expected ", rule.type));
  }
  if (count < 1 || count > rule.count_max) {
    return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat(rule.label, " was set with ", count,
                                                     " elements, expected 1 to ", rule.count_max));
  }
  if (elements == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                absl::StrCat(rule.label, " was set from a null pointer"));
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

Descriptor* BodyOf(cudnnBackendDescriptor_t handle) {
  Holder* holder = Holders::Get().Find(handle);
  return holder == nullptr ? nullptr : holder->body.get();
}

std::shared_ptr<const Descriptor> SharedBodyOf(cudnnBackendDescriptor_t handle) {
  Holder* holder = Holders::Get().Find(handle);
  return holder == nullptr ? nullptr : holder->body;
}

}  // namespace trainyard::cuda_on_cpu::cudnn

namespace cudnn = trainyard::cuda_on_cpu::cudnn;
using cudnn::Fail;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  if (descriptor == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the descriptor");
  }
  if (cudnn::RuleOf(type) == nullptr) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("no descriptor of kind ", type));
  }
  auto body = std::make_shared<cudnn::Descriptor>();
  body->type = type;
  *descriptor = cudnn::Holders::Get().Add(std::move(body));
  cudnn::CountObjects(1);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr) {
    return CUDNN_STATUS_SUCCESS;
  }
  if (!cudnn::Holders::Get().Remove(descriptor)) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "what is to be destroyed is no descriptor");
  }
  cudnn::CountObjects(-1);
  delete static_cast<cudnn::Holder*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  cudnn::Descriptor* body = cudnn::BodyOf(descriptor);
  if (body == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute was set of no descriptor");
  }
  const cudnn::AttributeRule* rule = nullptr;
  TY_CUDNN_TRY(cudnn::FindRule(*body, name, &rule));
  TY_CUDNN_TRY(cudnn::CheckSet(*rule, *body, type, count, elements));
  cudnn::Value value;
  value.type = type;
  value.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    TY_CUDNN_TRY(cudnn::ReadChildren(*rule, count, elements, &value));
  } else {
    if (type == CUDNN_TYPE_HANDLE) {
      TY_CUDNN_TRY(cudnn::CheckHandle(*static_cast<const cudnnHandle_t*>(elements)));
    }
    const auto* begin = static_cast<const std::byte*>(elements);
    value.bytes.assign(begin, begin + count * cudnn::ElementBytes(type));
  }
  body->values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested,
                                       int64_t* count, void* elements) {
  const cudnn::Descriptor* body = cudnn::BodyOf(descriptor);
  if (body == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute was read of no descriptor");
  }
  const cudnn::AttributeRule* rule = nullptr;
  TY_CUDNN_TRY(cudnn::FindRule(*body, name, &rule));
  if (!body->is_finalized) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                absl::StrCat(rule->label, " was read before the descriptor was finalized"));
  }
  const auto found = body->values.find(name);
  if (found == body->values.end() && name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, "plans of this engine have no text");
  }
  static const auto& kNothing = *new cudnn::Value();
  const cudnn::Value& value = found == body->values.end() ? kNothing : found->second;
  if (type != (value.count == 0 ? rule->type : value.type)) {
    return Fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                absl::StrCat(rule->label, " was read as type ", type, ", expected ", rule->type));
  }
  if (requested < 0 || (requested > 0 && elements == nullptr)) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                absl::StrCat(rule->label, ": no place for ", requested, " elements"));
  }
  // A part of a text is useless.
  if (type == CUDNN_TYPE_CHAR && requested > 0 && requested < value.count) {
    return Fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                absl::StrCat(rule->label, " has ", value.count, " characters"));
  }
  const int64_t copied = std::min(requested, value.count);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    TY_CUDNN_TRY(cudnn::WriteChildren(*rule, value, copied, elements));
  } else if (copied > 0) {
    std::memcpy(elements, value.bytes.data(),
                static_cast<size_t>(copied * cudnn::ElementBytes(type)));
  }
  if (count != nullptr) {
    *count = requested == 0 ? value.count : copied;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  cudnn::Descriptor* body = cudnn::BodyOf(descriptor);
  if (body == nullptr) {
    return Fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "what is to be finalized is no descriptor");
  }
  return cudnn::Finalize(body);
}
