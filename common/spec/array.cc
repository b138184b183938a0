// Makes the elements of an array, which differ only in their names and in their seeds, or in the
// index that their programs find.
#include "common/spec/array.h"

#include "absl/strings/str_cat.h"

namespace trainyard::spec {

v1::JobSpec ArrayElement(const v1::JobSpec& resolved, int32_t index) {
  v1::JobSpec element = resolved;
  element.set_name(absl::StrCat(resolved.name(), "-", index));
  if (resolved.has_program()) {
    (*element.mutable_program()->mutable_env())[kArrayIndexVariable] = absl::StrCat(index);
  } else {
    element.mutable_train()->set_seed(resolved.train().seed() + static_cast<uint64_t>(index));
  }
  return element;
}

}  // namespace trainyard::spec
