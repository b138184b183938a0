// Changes a spec as --set does, a line of the input each, and checks the result by the rules.
#include "client/commands/spec_changes.h"
#include "common/base/check.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::spec_set {
namespace {

constexpr size_t kChangesMax = 64;

v1::JobSpec Base() {
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  return spec;
}

void Run(absl::string_view bytes) {
  Input input(bytes);
  commands::SpecFlags flags;
  while (!input.empty() && flags.set.size() < kChangesMax) {
    flags.set.emplace_back(input.Until('\n'));
  }
  const auto changes = commands::ChangesOf(flags);
  if (!changes.ok()) return;
  v1::JobSpec spec = Base();
  for (const commands::Change& change : *changes) {
    const v1::JobSpec before = spec;
    if (spec::ApplyChange(spec, change.path, change.value).ok()) continue;
    TY_CHECK(google::protobuf::util::MessageDifferencer::Equals(before, spec));
  }
  spec::DiffSpecs(Base(), spec);
  const auto resolved = spec::ResolveSpec(spec);
  if (!resolved.ok()) return;
  const auto again = spec::ResolveSpec(*resolved);
  TY_CHECK_OK(again.status());
  TY_CHECK(spec::DiffSpecs(*resolved, *again).empty());
}

const Registration kTarget({.name = "spec_set", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::spec_set
