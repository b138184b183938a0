#include "common/spec/defaults.h"

#include "common/base/check.h"
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
    if (IsSubmessage(field) && !RulesOf(field).required() && HoldsDefaults(*field.message_type())) {
      return true;
    }
  }
  return false;
}

void FillOneof(Message& message, const OneofDescriptor& oneof) {
  const Reflection& reflection = *message.GetReflection();
  const std::string& name = oneof.options().GetExtension(v1::default_field);
  if (name.empty() || reflection.HasOneof(message, &oneof)) return;
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  TY_CHECK(field != nullptr && field->containing_oneof() == &oneof);
  if (IsSubmessage(*field)) {
    reflection.MutableMessage(&message, field);
  } else {
    TY_CHECK_OK(SetFieldJson(message, *field, RulesOf(*field).default_json(), name));
  }
}

void FillField(Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const bool is_given = IsGiven(message, field);
  const bool is_in_oneof = field.real_containing_oneof() != nullptr;
  if (IsSubmessage(field)) {
    const bool is_created =
        !is_in_oneof && !RulesOf(field).required() && HoldsDefaults(*field.message_type());
    if (is_given || is_created) FillDefaults(*reflection.MutableMessage(&message, &field));
    return;
  }
  const std::string& value = RulesOf(field).default_json();
  if (is_given || is_in_oneof || value.empty()) return;
  TY_CHECK_OK(SetFieldJson(message, field, value, field.full_name()));
}

}  // namespace

void FillDefaults(Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) FillOneof(message, *type.oneof_decl(i));
  for (int i = 0; i < type.field_count(); ++i) FillField(message, *type.field(i));
}

}  // namespace trainyard::spec
