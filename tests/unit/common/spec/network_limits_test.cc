// Tests that samples and stages that a network cannot take are refused at submission. The message
// has the field, the value and what would fit.
#include "common/spec/network_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/resolve.h"
#include "google/protobuf/text_format.h"
#include "tests/unit/common/spec/spec_fixture.h"

namespace trainyard::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns "spec.model.mlp.input: ..." for each mistake of a spec. `text` replaces its model, data
// and devices.
std::vector<std::string> Mistakes(const std::string& text) {
  v1::JobSpec spec = ValidSpec();
  v1::JobSpec changed;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &changed)) << text;
  if (changed.has_data()) spec.clear_data();
  spec.MergeFrom(changed);
  v1::JobSpec resolved;
  std::vector<std::string> texts;
  for (const FieldViolation& violation : ResolveInto(spec, resolved)) {
    texts.push_back(violation.field + ": " + violation.description);
  }
  return texts;
}

TEST(NetworkLimits, AnImageThatIsTooSmallIsRefused) {
  EXPECT_THAT(
      Mistakes(R"(model { alexnet { input: 3 input: 32 input: 32 classes: 10 } }
                          data { dataset: "cifar10" })"),
      ElementsAre("spec.model.alexnet.input: [3, 32, 32] is too small for alexnet; expected "
                  "a height and width of 63 or more"));
  EXPECT_THAT(
      Mistakes(R"(model { vgg { input: 1 input: 28 input: 28 classes: 10 } })"),
      ElementsAre("spec.model.vgg.input: [1, 28, 28] is too small for vgg; expected a height "
                  "and width of 32 or more"));
  EXPECT_THAT(Mistakes(R"(model { vgg { input: 3 input: 32 input: 32 classes: 10 } }
                          data { dataset: "cifar10" })"),
              IsEmpty());
}

TEST(NetworkLimits, AnImageThatIsTooLargeIsRefused) {
  EXPECT_THAT(
      Mistakes(R"(model { mlp { input: 3 input: 4096 input: 4096 hidden: 65536 } }
                  data { dataset: "images" path: "scans" image_size: 4096 })"),
      ElementsAre(
          "spec.model.mlp.input: [3, 4096, 4096] is too large for mlp; expected a height and "
          "width of 2364 or less"));
  EXPECT_THAT(Mistakes(R"(model { mlp { input: 3 input: 2364 input: 2364 hidden: 65536 } }
                          data { dataset: "images" path: "scans" image_size: 2364 })"),
              IsEmpty());
}

TEST(NetworkLimits, ASampleOfTooManyTokensIsRefused) {
  EXPECT_THAT(
      Mistakes(R"(model { gpt2 { context: 1048576 vocabulary: 16777216 } }
                          data { dataset: "tokens" path: "text" })"),
      ElementsAre("spec.model.gpt2.context: 1048576 is too large for gpt2 with a vocabulary "
                  "of 16777216; expected 65536 or less"));
}

TEST(NetworkLimits, AFieldThatBreaksItsOwnRuleSaysEnough) {
  EXPECT_THAT(Mistakes("model { wide_resnet { depth: 9000000000000000004 } } data { dataset: "
                       "\"cifar10\" } stages { count: 2 } devices { count: 2 }"),
              ElementsAre("spec.model.wide_resnet.depth: 9000000000000000004 is not accepted; "
                          "expected at least 10 and at most 1000"));
}

TEST(NetworkLimits, MoreStagesThanTheNetworkHasAreRefused) {
  EXPECT_THAT(
      Mistakes("model { mlp {} } stages { count: 6 } devices { count: 6 }"),
      ElementsAre("spec.stages.count: 6 stages are too many for this model, which can be cut "
                  "in 4 places; expected 5 stages or fewer"));
  EXPECT_THAT(Mistakes("model { mlp {} } stages { count: 5 } devices { count: 5 }"), IsEmpty());
  EXPECT_THAT(
      Mistakes(R"(model { gpt2 {} } data { dataset: "tokens" path: "text" }
                          stages { cuts: "a" cuts: "b" cuts: "c" } devices { count: 4 })"),
      ElementsAre("spec.stages.cuts: 4 stages are too many for this model, which can be cut in "
                  "1 place; expected 2 stages or fewer"));
  EXPECT_THAT(
      Mistakes(R"(model { layers { stack { flatten {} } stack { linear { features: 10 } } } }
                          stages { count: 4 } devices { count: 4 })"),
      ElementsAre("spec.stages.count: 4 stages are too many for this model, which can be cut "
                  "in 2 places; expected 3 stages or fewer"));
}

}  // namespace
}  // namespace trainyard::spec
