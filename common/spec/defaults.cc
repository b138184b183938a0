// Fills in defaults. The rules of a type of message are read once and kept, since reading a default
// from its JSON costs more than filling it in.
#include "common/spec/defaults.h"

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/spec/fields.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

bool HoldsDefaults(const Descriptor& type) {
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    if (!type.oneof_decl(i)->options().GetExtension(v1::default_field).empty()) return true;
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.real_containing_oneof() != nullptr) continue;
    if (!RulesOf(field).default_json().empty()) return true;
    if (IsSubmessage(field) && !IsRequired(RulesOf(field)) && !RulesOf(field).stays_unset() &&
        HoldsDefaults(*field.message_type())) {
      return true;
    }
  }
  return false;
}

// Returns the member that a oneof gets if the spec chooses none.
struct OneofDefault {
  const OneofDescriptor* oneof;
  const FieldDescriptor* member;
};
struct Submessage {
  const FieldDescriptor* field;
  bool is_created;  // if the spec does not give it
};

// The rules of one type of message, which are read once. A submission fills in some forty defaults,
// and reading each from its JSON would take longer than all the rest.
struct TypeDefaults {
  std::vector<OneofDefault> oneofs;
  std::vector<const FieldDescriptor*> fields;  // those with a default
  std::vector<Submessage> submessages;
  // Lists of messages, whose elements are filled in one by one.
  std::vector<const FieldDescriptor*> lists;
  std::unique_ptr<Message> values;  // every field of `fields` has its default here
};

TypeDefaults ReadDefaults(const Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  TypeDefaults defaults;
  defaults.values.reset(message.New());
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& oneof = *type.oneof_decl(i);
    const std::string& name = oneof.options().GetExtension(v1::default_field);
    if (name.empty()) continue;
    const FieldDescriptor* member = type.FindFieldByName(name);
    TY_CHECK(member != nullptr && member->containing_oneof() == &oneof);
    defaults.oneofs.push_back({&oneof, member});
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const v1::FieldRules& rules = RulesOf(field);
    const bool is_in_oneof = field.real_containing_oneof() != nullptr;
    if (IsSubmessage(field)) {
      const bool is_created = !is_in_oneof && !IsRequired(rules) && !rules.stays_unset() &&
                              HoldsDefaults(*field.message_type());
      defaults.submessages.push_back({&field, is_created});
    } else if (IsMessageList(field)) {
      defaults.lists.push_back(&field);
    } else if (!is_in_oneof && !rules.default_json().empty()) {
      TY_CHECK_OK(SetFieldJson(*defaults.values, field, rules.default_json(), field.full_name()));
      defaults.fields.push_back(&field);
    }
  }
  return defaults;
}

const TypeDefaults& DefaultsOf(const Message& message) {
  static Mutex mutex;
  static auto* known = new absl::flat_hash_map<const Descriptor*, std::unique_ptr<TypeDefaults>>;
  const MutexLock lock(&mutex);
  std::unique_ptr<TypeDefaults>& defaults = (*known)[message.GetDescriptor()];
  if (defaults == nullptr) defaults = std::make_unique<TypeDefaults>(ReadDefaults(message));
  return *defaults;
}

}  // namespace

void FillDefaults(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const TypeDefaults& defaults = DefaultsOf(message);
  for (const OneofDefault& choice : defaults.oneofs) {
    if (reflection.HasOneof(message, choice.oneof)) continue;
    if (IsSubmessage(*choice.member)) {
      reflection.MutableMessage(&message, choice.member);
    } else {
      const std::string& value = RulesOf(*choice.member).default_json();
      TY_CHECK_OK(SetFieldJson(message, *choice.member, value, choice.member->name()));
    }
  }
  std::vector<const FieldDescriptor*> absent;
  for (const FieldDescriptor* field : defaults.fields) {
    if (!IsGiven(message, *field)) absent.push_back(field);
  }
  if (!absent.empty()) {
    const std::unique_ptr<Message> values(message.New());
    values->CopyFrom(*defaults.values);
    reflection.SwapFields(&message, values.get(), absent);
  }
  for (const Submessage& submessage : defaults.submessages) {
    if (submessage.is_created || IsGiven(message, *submessage.field)) {
      FillDefaults(*reflection.MutableMessage(&message, submessage.field));
    }
  }
  for (const FieldDescriptor* list : defaults.lists) {
    for (int i = 0; i < reflection.FieldSize(message, list); ++i) {
      FillDefaults(*reflection.MutableRepeatedMessage(&message, list, i));
    }
  }
}

}  // namespace trainyard::spec
