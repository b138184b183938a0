#include "common/spec/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/change.h"
#include "common/spec/resolve.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Diff, EqualSpecsDoNotDiffer) {
  EXPECT_THAT(DiffSpecs(ValidSpec(), ValidSpec()), IsEmpty());
}

TEST(Diff, ShowsValuesAsJsonInOrderOfPath) {
  const v1::JobSpec left = *ResolveSpec(ValidSpec());
  v1::JobSpec right = left;
  right.set_name("other");
  right.mutable_optimizer()->mutable_sgd()->set_lr(0.2);
  right.mutable_checkpoint()->mutable_every()->set_steps(500);
  right.mutable_data()->set_normalize(v1::NORMALIZE_UNIT);
  right.mutable_model()->mutable_mlp()->add_hidden(32);
  EXPECT_THAT(DiffSpecs(left, right),
              ElementsAre(FieldDifference{"checkpoint.every", "\"auto\"", "\"500 steps\""},
                          FieldDifference{"data.normalize", "\"dataset\"", "\"unit\""},
                          FieldDifference{"model.mlp.hidden", "[256]", "[256, 32]"},
                          FieldDifference{"name", "\"mlp-glyphs\"", "\"other\""},
                          FieldDifference{"optimizer.sgd.lr", "0.1", "0.2"}));
}

TEST(Diff, ShowsBothMembersOfASwitchedOneof) {
  const v1::JobSpec left = *ResolveSpec(ValidSpec());
  v1::JobSpec right = left;
  right.mutable_schedule()->mutable_cosine()->set_final_lr(0.001);
  EXPECT_THAT(DiffSpecs(left, right),
              ElementsAre(FieldDifference{"schedule.constant", "{}", ""},
                          FieldDifference{"schedule.cosine.final_lr", "", "0.001"}));
}

TEST(Diff, TellsUnsetFromZero) {
  v1::JobSpec left = ValidSpec();
  v1::JobSpec right = left;
  right.set_priority(0);
  EXPECT_THAT(DiffSpecs(left, right), ElementsAre(FieldDifference{"priority", "", "0"}));
}

TEST(Diff, TheDifferencesTurnTheLeftIntoTheRight) {
  const v1::JobSpec left = *ResolveSpec(ValidSpec());
  v1::JobSpec right = left;
  right.mutable_train()->set_steps(700);
  right.mutable_train()->set_seed(9007199254740991);
  right.mutable_optimizer()->mutable_sgd()->set_lr(1.0 / 3);
  right.mutable_on_disconnect()->mutable_keep()->set_seconds(90);
  right.mutable_model()->mutable_convnet()->set_batch_norm(true);
  v1::JobSpec changed = left;
  for (const FieldDifference& difference : DiffSpecs(left, right)) {
    ASSERT_TRUE(ApplyChange(changed, difference.path, difference.right_json).ok())
        << difference.path;
  }
  EXPECT_THAT(DiffSpecs(changed, right), IsEmpty());
}

}  // namespace
}  // namespace trainyard::spec
