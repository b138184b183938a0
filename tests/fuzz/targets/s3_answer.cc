// Reads what a store of objects answers.
#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/s3/xml.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::s3_answer {
namespace {

// No text of a store may reach a terminal as a command.
void CheckIsPlain(const std::string& text) {
  for (const char c : text) {
    TY_CHECK(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t');
    TY_CHECK(c != 0x7f);
  }
}

void Run(absl::string_view bytes) {
  const s3::ErrorDocument error = s3::ParseError(bytes);
  CheckIsPlain(error.code);
  CheckIsPlain(error.message);
  CheckIsPlain(error.region);
  const auto page = s3::ParseList(bytes);
  if (page.ok()) {
    for (const s3::ListedObject& object : page->objects) {
      TY_CHECK(!object.key.empty() && object.key.size() <= s3::kKeyBytesMax && object.size >= 0);
    }
  } else {
    TY_CHECK(absl::IsDataLoss(page.status()));
    CheckIsPlain(std::string(page.status().message()));
  }
  (void)s3::ParseUploadId(bytes);
  const auto completed = s3::ParseCompleted(bytes);
  TY_CHECK(!completed.ok() || !completed->empty());
  const auto keys = s3::ParseAssumedRole(bytes);
  if (!keys.ok()) TY_CHECK(!absl::StrContains(keys.status().message(), "SecretAccessKey"));
}

const Registration kTarget({.name = "s3_answer", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::s3_answer
