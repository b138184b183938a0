// Compares two messages field by field by reflection; a submessage that one side lacks is compared
// with an empty one.
#include "common/spec/diff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/spec/fields.h"

namespace trainyard::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

void Diff(const Message& left, const Message& right, const std::string& path,
          std::vector<FieldDifference>& differences);

// Lists of equal length are compared element by element, so that a change of one layer shows only
// that layer. Lists of unequal length are compared as wholes, since an inserted element shifts all
// that follow.
void DiffList(const Message& left, const Message& right, const FieldDescriptor& field,
              const std::string& path, std::vector<FieldDifference>& differences) {
  const auto element = [&field](const Message& message, int index) -> const Message& {
    return message.GetReflection()->GetRepeatedMessage(message, &field, index);
  };
  for (int i = 0; i < left.GetReflection()->FieldSize(left, &field); ++i) {
    Diff(element(left, i), element(right, i), absl::StrCat(path, "[", i, "]"), differences);
  }
}

void Diff(const Message& left, const Message& right, const std::string& path,
          std::vector<FieldDifference>& differences) {
  const Descriptor& type = *left.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string field_path = JoinFieldPath(path, field.name());
    const bool on_left = IsGiven(left, field);
    const bool on_right = IsGiven(right, field);
    if (!on_left && !on_right) continue;
    if (IsSubmessage(field) && (field.message_type()->field_count() > 0 || on_left == on_right)) {
      // If one side is absent, its fields read as unset.
      Diff(left.GetReflection()->GetMessage(left, &field),
           right.GetReflection()->GetMessage(right, &field), field_path, differences);
      continue;
    }
    if (IsMessageList(field) && left.GetReflection()->FieldSize(left, &field) ==
                                    right.GetReflection()->FieldSize(right, &field)) {
      DiffList(left, right, field, field_path, differences);
      continue;
    }
    FieldDifference difference = {field_path, FieldJson(left, field), FieldJson(right, field)};
    if (difference.left_json != difference.right_json) {
      differences.push_back(std::move(difference));
    }
  }
}

}  // namespace

std::vector<FieldDifference> DiffSpecs(const Message& left, const Message& right) {
  TY_CHECK(left.GetDescriptor() == right.GetDescriptor());
  std::vector<FieldDifference> differences;
  Diff(left, right, "", differences);
  std::sort(differences.begin(), differences.end(),
            [](const FieldDifference& a, const FieldDifference& b) { return a.path < b.path; });
  return differences;
}

}  // namespace trainyard::spec
