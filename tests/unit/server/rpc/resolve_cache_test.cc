#include "server/rpc/resolve_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/spec/resolve.h"

namespace trainyard::rpc {
namespace {

v1::JobSpec Spec(const std::string& name, uint64_t seed) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(2);
  spec.mutable_train()->set_seed(seed);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  return spec;
}

TEST(ResolveCache, AnswersAsResolvingDoesWhatEverCameBefore) {
  ResolveCache cache;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1500; ++i) {  // more than it keeps
      const v1::JobSpec spec = Spec(absl::StrCat("job-", i % 7), static_cast<uint64_t>(i));
      std::vector<FieldViolation> violations;
      const auto resolved = cache.Resolve(spec, violations);
      ASSERT_NE(resolved, nullptr);
      ASSERT_EQ(resolved->written_bytes, spec.SerializeAsString());
      ASSERT_EQ(resolved->resolved_bytes, spec::ResolveSpec(spec)->SerializeAsString());
      ASSERT_EQ(resolved->spec.SerializeAsString(), resolved->resolved_bytes);
    }
  }
}

TEST(ResolveCache, ANameOfTheWrongFormIsRefusedThoughTheRestIsKnown) {
  ResolveCache cache;
  std::vector<FieldViolation> violations;
  ASSERT_NE(cache.Resolve(Spec("good", 1), violations), nullptr);
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("-a"), std::string(64, 'x')}) {
    violations.clear();
    EXPECT_EQ(cache.Resolve(Spec(name, 1), violations), nullptr) << name;
    ASSERT_EQ(violations.size(), 1u) << name;
    EXPECT_EQ(violations[0].field, "spec.name");
  }
  EXPECT_NE(cache.Resolve(Spec(std::string(63, 'x'), 1), violations), nullptr);
}

}  // namespace
}  // namespace trainyard::rpc
