// Feeds spec files to the strict YAML reader, and what it accepts to the rules of specs.
#include "client/spec_loader/spec_file.h"
#include "common/base/check.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::yaml_spec {
namespace {

void Run(absl::string_view input) {
  for (const spec_loader::SpecText& text : spec_loader::SplitDocuments("input.yaml", input)) {
    spec_loader::SpecFile file = spec_loader::ParseSpecText(text);
    TY_CHECK(file.is_readable || !file.mistakes.empty());
    spec_loader::AddRuleMistakes(file, file.spec, {});
    TY_CHECK(file.mistakes.empty() == spec_loader::RenderMistakes(file, true).empty());
    if (!file.mistakes.empty()) continue;
    const auto resolved = spec::ResolveSpec(file.spec);
    TY_CHECK_OK(resolved.status());
    const auto again = spec::ResolveSpec(*resolved);
    TY_CHECK_OK(again.status());
    TY_CHECK(spec::DiffSpecs(*resolved, *again).empty());
  }
}

// A file of 20 bytes makes a spec with all its defaults, and each of its mistakes is shown with its
// line.
const Registration kTarget({.name = "yaml_spec", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::yaml_spec
